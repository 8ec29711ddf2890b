"""Boundary of queries of the native code and the processor: kernels, features, caches, compiler. Loads no pool of
threads."""

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
    """The native kernels of isas.h: op, and name, rank, features, tier and summary of the instruction set."""
    cdef tm_listed each = tm_listed_at(0)
    found = []
    while each.op != NULL:
        features = tuple(each.isa.features.decode().split(",")) if each.isa.features[0] else ()
        isa = (each.isa.name.decode(), each.isa.rank, features, each.isa.tier.decode(), each.isa.summary.decode())
        found.append((each.op.decode(), isa))
        each = tm_listed_at(<size_t>len(found))
    return found


def features() -> tuple[str, ...]:
    """Instruction-set features that this processor has and its operating system supports, with the names of CPUID
    ("avx2", "avx512vnni"), on aarch64 those of Linux ("asimddp", "i8mm").

    Only features that tritmark's kernels and probes can use are checked; other architectures have none.
    """
    cdef size_t index = 0
    found = []
    while tm_feature_name(index) != NULL:
        if tm_feature_here(index):
            found.append(tm_feature_name(index).decode())
        index += 1
    return tuple(found)


def cache_bytes() -> dict[str, int]:
    """Bytes of the data caches from the C library, under "l1d", "l2" and "l3"; 0 if unknown.

    In a virtual machine "l3" can be that of the whole host: harness.machine.cpu reads what one core sees of it.
    """
    return {"l1d": tm_cache_bytes(1), "l2": tm_cache_bytes(2), "l3": tm_cache_bytes(3)}


def l2_bytes() -> int:
    """Bytes of one core's L2 cache; 0 if unknown."""
    return tm_cache_bytes(2)


def compiler() -> str:
    """Name and version of the compiler that built the native code."""
    return tm_compiler().decode()


def variable(const char *name) -> str | None:
    """The current value of an environment variable, as in os.environ, or None. Each call tests two of them for its
    choice of a kernel; os.environ takes ten times as long for one that is not set, because it raises and catches an
    exception."""
    cdef const char *found = getenv(name)
    return None if found == NULL else PyUnicode_DecodeFSDefault(found)
