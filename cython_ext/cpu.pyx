"""Boundary of the questions to the processor: features, caches, and the compiler that built the native code."""

cdef extern from "src/cpu/cpu.h":
    const char *tm_feature_name(size_t index)
    int tm_feature_here(size_t index)
    long tm_cache_bytes(int level)
    const char *tm_compiler()


def features() -> tuple[str, ...]:
    """Instruction-set features that this processor has and its operating system supports, by CPUID's names ("avx2", "avx512vnni").

    Only those that tritmark's kernels and probes could use are looked for; off x86-64 there are none.
    """
    cdef size_t index = 0
    found = []
    while tm_feature_name(index) != NULL:
        if tm_feature_here(index):
            found.append(tm_feature_name(index).decode())
        index += 1
    return tuple(found)


def cache_bytes() -> dict[str, int]:
    """Bytes of the data caches as the C library tells them, under "l1d", "l2" and "l3"; 0 where unknown.

    In a virtual machine "l3" can be the whole host's: harness.machine.cpu reads what one core sees of it.
    """
    return {"l1d": tm_cache_bytes(1), "l2": tm_cache_bytes(2), "l3": tm_cache_bytes(3)}


def l2_bytes() -> int:
    """Bytes of one core's second-level cache; 0 where unknown."""
    return tm_cache_bytes(2)


def compiler() -> str:
    """Name and version of the compiler that built the native code."""
    return tm_compiler().decode()
