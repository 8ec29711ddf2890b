"""Which GPU there is, and why none can be used: drivers, packages and NVML that answer as the real ones were seen
to."""

# ruff: noqa: N802 (the driver's names)
from __future__ import annotations

import ctypes
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness.errors import DeviceUnavailableError
from tritmark.harness.extras import install
from tritmark.harness.machine import gpu, libcuda, nvml

UUID = bytes(range(16))
WORDS = {
    35: b"CUDA driver version is insufficient for CUDA runtime version",
    46: b"CUDA-capable device(s) is/are busy or unavailable",
    100: b"no CUDA-capable device is detected",
}
ATTRIBUTES = dict(
    zip(
        (1, 8, 10, 12, 13, 16, 36, 37, 38, 39, 75, 76, 81, 82, 97, 106),
        (1024, 49152, 32, 65536, 1_980_000, 132, 3_201_000, 6144, 60 << 20, 2048, 9, 0, 233_472, 65536, 232_448, 32),
        strict=True,
    )
)
"""By their numbers in cuda.h, those of an H200."""


class Library:
    """libcuda.so.1 with one device, as far as it is asked."""

    def __init__(self, init: int = 0, devices: int = 1, mode: int = 0, active: int = 0) -> None:
        self.init, self.devices, self.active = init, devices, active
        self.attributes = ATTRIBUTES | {20: mode}

    def cuInit(self, flags: int) -> int:
        return self.init

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.devices
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:
        device._obj.value = index
        return 0 if index < self.devices else 101

    def cuDeviceGetName(self, name: Any, length: int, device: int) -> int:
        name.value = b"NVIDIA H200"
        return 0

    def cuPointerGetAttributes(self, count: int, wanted: Any, into: Any, pointer: Any) -> int:
        """Memory of the host is pinned from 4096 to 5000, and of the device there is some from 8192 to 9000. Of other
        addresses nothing is known, which is no error."""
        assert (count, list(wanted)) == (3, [2, 11, 12])
        for kind, begin, end in ((1, 4096, 5000), (2, 8192, 9000)):
            if begin <= pointer.value < end:
                ctypes.c_uint.from_address(into[0]).value = kind
                ctypes.c_uint64.from_address(into[1]).value = begin
                ctypes.c_size_t.from_address(into[2]).value = end - begin
        return self.init

    def cuDeviceTotalMem_v2(self, memory: Any, device: int) -> int:
        memory._obj.value = 150_000_000_000
        return 0

    def cuDeviceGetUuid_v2(self, uuid: Any, device: int) -> int:
        uuid.raw = UUID
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int:
        value._obj.value = self.attributes[attribute]
        return 0

    def cuDeviceCanAccessPeer(self, can: Any, device: int, peer: int) -> int:
        can._obj.value = int({device, peer} != {0, 2})
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 12090
        return 0

    def cuDevicePrimaryCtxGetState(self, device: int, flags: Any, active: Any) -> int:
        active._obj.value = self.active
        return 0

    def cuGetErrorString(self, code: int, text: Any) -> int:
        text._obj.value = WORDS.get(code)
        return 0 if code in WORDS else 1


class NVMLError(Exception):
    pass


def module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    made.__spec__ = ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    made.__dict__.update(content)
    return made


def fake_nvml(monkeypatch: pytest.MonkeyPatch, **content: Any) -> None:
    content = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
    } | content
    monkeypatch.setitem(sys.modules, "pynvml", module("pynvml", **content))
    nvml._nvml.cache_clear()


def no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nvml._nvml.cache_clear()


def driver(monkeypatch: pytest.MonkeyPatch, library: Library | None) -> None:
    def load() -> Library:
        if library is None:
            raise OSError("libcuda.so.1: cannot open shared object file: No such file or directory")
        return library

    monkeypatch.setattr(libcuda, "library", load)


def pycuda(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module("pycuda", driver=module("pycuda.driver"))
    monkeypatch.setitem(sys.modules, "pycuda", made)
    monkeypatch.setitem(sys.modules, "pycuda.driver", made.driver)
    bindings = module("cuda.bindings")
    monkeypatch.setitem(sys.modules, "cuda", module("cuda", bindings=bindings))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """All is well, unless a test unplugs something."""
    for name in (*gpu.FAKES, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    driver(monkeypatch, Library())
    pycuda(monkeypatch)
    no_nvml(monkeypatch)
    yield
    nvml._nvml.cache_clear()


def test_all_is_well() -> None:
    assert gpu.gpu_compiled()
    assert gpu.gpu_available()
    assert gpu.why_not() is None
    assert gpu.faked() is None


def test_pycuda_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    find = gpu.find_spec  # type: ignore[attr-defined]
    monkeypatch.setattr(gpu, "find_spec", lambda name: None if name == "pycuda" else find(name))
    assert not gpu.gpu_compiled()
    assert gpu.gpu_available()
    assert "PyCUDA is not installed" in str(gpu.why_not())
    assert install("cuda") in str(gpu.why_not())


def test_cuda_bindings_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    find = gpu.find_spec  # type: ignore[attr-defined]
    monkeypatch.setattr(gpu, "find_spec", lambda name: None if name.startswith("cuda") else find(name))
    assert "cuda-bindings is not installed" in str(gpu.why_not())


@pytest.mark.parametrize(
    ("library", "found", "step"),
    [
        (None, "no NVIDIA driver: libcuda.so.1 cannot be loaded", "--gpus all"),
        (Library(init=34), "only the toolkit's stub", "LD_LIBRARY_PATH"),
        (Library(init=35), "too old: cuInit: CUDA driver version is insufficient", "update it"),
        (Library(init=46), "busy or unavailable", "nvidia-smi shows"),
        (
            Library(init=100),
            "no CUDA device: cuInit: no CUDA-capable device is detected (CUDA error 100)",
            "nvidia-smi",
        ),
        (Library(init=803), "different versions", "reboot"),
        (Library(init=999), "does not start", "nvidia-smi"),
        (Library(devices=0), "no CUDA device", "nvidia-smi"),
    ],
)
def test_driver_or_device_is_missing(
    monkeypatch: pytest.MonkeyPatch, library: Library | None, found: str, step: str
) -> None:
    driver(monkeypatch, library)
    assert gpu.gpu_compiled()
    assert not gpu.gpu_available()
    problem = gpu.problem()
    assert problem is not None
    assert found in problem.found
    assert step in problem.next_step
    assert "TRITMARK_CUDA=simulator" in problem.next_step
    with pytest.raises(DeviceUnavailableError, match="next: "):
        gpu.device_info()


def test_hidden_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, Library(init=100))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES is ''" in str(gpu.why_not())


def test_driver_too_old_for_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Library, "cuDeviceGetCount")
    assert "too old" in str(gpu.why_not())


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("/x/_driver.so: undefined symbol: cuCtxCreate_v4", "the NVIDIA driver is too old for this build of PyCUDA"),
        ("libcurand.so.10: cannot open shared object file: No such file or directory", "PyCUDA cannot be imported"),
    ],
)
def test_pycuda_does_not_load(monkeypatch: pytest.MonkeyPatch, words: str, found: str) -> None:
    class Finder:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name == "pycuda.driver":
                raise ImportError(words)

    monkeypatch.delitem(sys.modules, "pycuda.driver")
    monkeypatch.delattr(sys.modules["pycuda"], "driver")
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    why = str(gpu.why_not())
    assert found in why
    assert words in why
    assert "--no-binary pycuda" in why


def test_device_that_admits_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, Library(mode=2))
    assert "PROHIBITED" in str(gpu.why_not())


def test_busy_device(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(monkeypatch, nvmlDeviceGetComputeRunningProcesses=lambda device: [SimpleNamespace(pid=1)])
    driver(monkeypatch, Library(mode=3))
    assert "NVIDIA H200 is busy" in str(gpu.why_not())
    assert "CUDA_VISIBLE_DEVICES" in str(gpu.why_not())
    driver(monkeypatch, Library(mode=3, active=1))
    assert gpu.why_not() is None, "the process that has it is this one"
    driver(monkeypatch, Library(mode=0))
    assert gpu.why_not() is None, "others may use it too"
    fake_nvml(monkeypatch, nvmlDeviceGetComputeRunningProcesses=lambda device: [])
    driver(monkeypatch, Library(mode=3))
    assert gpu.why_not() is None, "it is free"


@pytest.mark.parametrize(
    ("ours", "documents", "available"),
    [
        ("cuda", None, True),
        ("GPU", None, True),
        (None, "cuda", True),
        (None, "Gpu", True),
        ("none", None, False),
        ("1", None, False),
        (None, "cpu", False),
        ("none", "cuda", False),
        ("cuda", "none", True),
        ("", "none", False),
    ],
)
@pytest.mark.parametrize("library", [Library(), None])
def test_fakes_decide(
    monkeypatch: pytest.MonkeyPatch, library: Library | None, ours: str | None, documents: str | None, available: bool
) -> None:
    driver(monkeypatch, library)
    for name, value in zip(gpu.FAKES, (ours, documents), strict=True):
        if value is not None:
            monkeypatch.setenv(name, value)
    assert gpu.gpu_available() is available
    fake = gpu.faked()
    assert fake == (f"TRITMARK_GPU_FAKE={ours}" if ours else f"BITNET_GPU_FAKE={documents}")
    why = gpu.why_not()
    assert why is None if available else fake in str(why)


def test_faked_gpu_is_named_when_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, None)
    monkeypatch.setenv("BITNET_GPU_FAKE", "cuda")
    with pytest.raises(DeviceUnavailableError, match=r"no NVIDIA driver.*FAKE=cuda pretends that there is one"):
        gpu.device_info()


def test_device_info(monkeypatch: pytest.MonkeyPatch) -> None:
    info = gpu.device_info()
    assert info.name == "NVIDIA H200"
    assert info.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (info.capability, info.arch) == ((9, 0), "sm_90")
    assert (info.fp16, info.bf16) == (True, True)
    assert (info.memory, info.l2, info.sms, info.warp) == (150_000_000_000, 60 << 20, 132, 32)
    assert (info.threads_per_block, info.threads_per_sm, info.blocks_per_sm) == (1024, 2048, 32)
    assert (info.registers_per_block, info.registers_per_sm) == (65536, 65536)
    assert (info.shared_per_block, info.shared_per_block_optin, info.shared_per_sm) == (49152, 232_448, 233_472)
    assert (info.clock_hz, info.memory_clock_hz, info.memory_bus_bits) == (1_980_000_000, 3_201_000_000, 6144)
    assert info.peak_bandwidth == 2 * 3_201_000_000 * 768
    assert info.driver == "CUDA 12.9"
    fake_nvml(monkeypatch, nvmlSystemGetDriverVersion=lambda: "575.57.08")
    assert gpu.device_info().driver == "575.57.08, CUDA 12.9"


def test_device_of_another_index() -> None:
    with pytest.raises(DeviceUnavailableError, match=r"no GPU 1.*legal: 0 to 0"):
        gpu.device_info(1)


def test_which_gpus_reach_each_others_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu.reaches(0) == ()
    driver(monkeypatch, Library(devices=3))
    assert [gpu.reaches(index) for index in range(3)] == [(1,), (0, 2), (1,)]
    driver(monkeypatch, None)
    assert gpu.reaches(0) == ()


def test_a_gpu_of_several_is_asked_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, Library(devices=2))
    assert gpu.why_not(1) is None
    assert "no GPU 2; next: legal: 0 to 1" in str(gpu.why_not(2))
    driver(monkeypatch, Library(devices=2, mode=2))
    assert "PROHIBITED" in str(gpu.why_not(1))


# NVML


def test_health(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refused(*arguments: Any) -> Any:
        raise NVMLError("Not Supported")

    def handle(uuid: str) -> str:
        asked.append(uuid)
        return uuid

    fake_nvml(
        monkeypatch,
        NVML_TEMPERATURE_GPU=0,
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        nvmlDeviceGetHandleByUUID=handle,
        nvmlDeviceGetTemperature=lambda device, sensor: 41,
        nvmlDeviceGetPowerUsage=lambda device: 76_543,
        nvmlDeviceGetEnforcedPowerLimit=lambda device: 700_000,
        nvmlDeviceGetClockInfo=lambda device, which: {1: 345, 2: 3201}[which],
        nvmlDeviceGetMaxClockInfo=lambda device, which: {1: 1980, 2: 3201}[which],
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda device: 0x45,
        nvmlDeviceGetEccMode=refused,
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=17),
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=12345),
    )
    assert gpu.health() == gpu.Health(
        temperature=41,
        power=76.543,
        power_limit=700.0,
        clock_hz=345_000_000,
        clock_max_hz=1_980_000_000,
        memory_clock_hz=3_201_000_000,
        memory_clock_max_hz=3_201_000_000,
        throttle=("gpu_idle", "sw_power_cap", "hw_thermal_slowdown"),
        ecc=None,
        ecc_uncorrected=None,
        utilization=17,
        memory_used=12345,
    )
    assert asked == ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"], "NVML counts devices that CUDA_VISIBLE_DEVICES hides"


def test_health_says_why_it_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gpu.health() == gpu.Health(note=f"nvidia-ml-py is not installed; next: {install('cuda')}")

    def refused(*arguments: Any) -> Any:
        raise NVMLError("Driver Not Loaded")

    fake_nvml(monkeypatch, nvmlInit=refused)
    assert gpu.health() == gpu.Health(note="NVML: Driver Not Loaded")
    fake_nvml(monkeypatch, nvmlDeviceGetHandleByUUID=refused)
    assert "Driver Not Loaded" in gpu.health().note
    driver(monkeypatch, None)
    assert "no NVIDIA driver" in gpu.health().note


@given(st.sets(st.integers(0, 63)))
def test_throttle_reasons(bits: set[int]) -> None:
    named = nvml.reasons(sum(1 << bit for bit in bits))
    assert [nvml.REASONS.get(1 << bit, hex(1 << bit)) for bit in sorted(bits)] == list(named)


# The machine itself


def test_nothing_costly_is_imported() -> None:
    code = (
        "import sys, tritmark.harness.machine.gpu as gpu; gpu.why_not.__doc__;"
        "print(sorted({'pycuda', 'pynvml', 'cuda', 'numpy', 'tritmark.kernels'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_this_machine_gives_a_reason_or_a_device() -> None:
    code = (
        "from tritmark.harness.machine import gpu; why = gpu.why_not();"
        "print('why' if why and '; next: ' in why else gpu.device_info().uuid, bool(why) or gpu.gpu_available())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    answer, sound = done.stdout.split()
    assert answer == "why" or answer.startswith("GPU-")
    assert sound == "True"


@pytest.mark.parametrize(
    ("address", "found"),
    [
        (4095, range(0)),
        (4096, range(4096, 5000)),
        (4999, range(4096, 5000)),
        (5000, range(0)),
        (8200, range(0)),
        (0, range(0)),
    ],
)
def test_the_driver_tells_what_memory_of_the_host_is_pinned(address: int, found: range) -> None:
    assert libcuda.pinned_around(address) == found


def test_a_driver_that_does_not_tell_what_is_pinned_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    driver(monkeypatch, Library(init=700))
    with pytest.raises(libcuda.DriverError, match="CUDA error 700"):
        libcuda.pinned_around(4096)
