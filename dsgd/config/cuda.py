"""CUDA devices, counted without torch."""

import ctypes


def cuda_device_count() -> int:
    """CUDA devices that this process may use, asked of the driver, so that torch need not be imported.

    The driver itself honours ``CUDA_VISIBLE_DEVICES``.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value
