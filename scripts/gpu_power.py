"""Energy and clock of a GPU by NVML, the management library of NVIDIA's driver, for scripts that use PyTorch."""
import ctypes
import time

SM_CLOCK = 1


class PowerMeter:
    """Measures between start() and take(). uuid: as torch.cuda.get_device_properties() has it."""

    def __init__(self, uuid):
        self.handle = ctypes.c_void_p()
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            self.nvml = None
            return
        name = f"GPU-{uuid}".encode()
        if self.nvml.nvmlInit_v2() or self.nvml.nvmlDeviceGetHandleByUUID(name, ctypes.byref(self.handle)):
            self.nvml = None

    def _read(self, function, value, *arguments):
        if self.nvml is None or getattr(self.nvml, function)(self.handle, *arguments, ctypes.byref(value)):
            return None
        return value.value

    def _millijoules(self):
        return self._read("nvmlDeviceGetTotalEnergyConsumption", ctypes.c_ulonglong())

    def start(self):
        self.clocks, self.began, self.first = [], time.perf_counter(), self._millijoules()

    def sample(self):
        """Samples the clock. Call it while the GPU is busy."""
        self.clocks.append(self._read("nvmlDeviceGetClockInfo", ctypes.c_uint(), SM_CLOCK))

    def take(self):
        """Mean power and clock since start(); {} if the driver does not report them."""
        last = self._millijoules()
        if last is None or self.first is None or not self.clocks or None in self.clocks:
            return {}
        return {"watts": (last - self.first) / 1000 / (time.perf_counter() - self.began),
                "clock_mhz": sum(self.clocks) / len(self.clocks)}
