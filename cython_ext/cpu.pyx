"""Boundary of the questions to the native code and the processor: kernels, features, caches, compiler. Loads no
pool of threads."""

from libc.stdlib cimport getenv

cdef extern from "Python.h":
    str PyUnicode_DecodeFSDefault(const char *text)

cdef extern from "src/cpu/cpu.h":
    ctypedef struct tm_isa:
        const char *name
        int rank
        const char *features
        const char *tier
        const char *summary
    ctypedef struct tm_listed:
        const char *op
        tm_isa isa
    tm_listed tm_listed_at(size_t index)
    const char *tm_feature_name(size_t index)
    int tm_feature_here(size_t index)
    long tm_cache_bytes(int level)
    const char *tm_compiler()


def kernels() -> list[tuple[str, tuple[str, int, tuple[str, ...], str, str]]]:
    """The native kernels: op, and name, rank, features, tier and summary of the instruction set, as isas.h has them."""
    cdef tm_listed each = tm_listed_at(0)
    found = []
    while each.op != NULL:
        features = tuple(each.isa.features.decode().split(",")) if each.isa.features[0] else ()
        isa = (each.isa.name.decode(), each.isa.rank, features, each.isa.tier.decode(), each.isa.summary.decode())
        found.append((each.op.decode(), isa))
        each = tm_listed_at(<size_t>len(found))
    return found


def features() -> tuple[str, ...]:
    """Instruction-set features that this processor has and its operating system supports, by CPUID's names ("avx2",
    "avx512vnni"), on aarch64 by Linux's ("asimddp", "i8mm").

    Only those that tritmark's kernels and probes could use are looked for; on other architectures there are none.
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


def variable(const char *name) -> str | None:
    """What an environment variable is now, as os.environ has it, or None. A choice of a kernel is asked for at each
    call, and rests on two: os.environ, which raises and catches where one is not set, takes ten times as long."""
    cdef const char *found = getenv(name)
    return None if found == NULL else PyUnicode_DecodeFSDefault(found)
