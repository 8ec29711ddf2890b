"""Build PyCUDA into this interpreter's environment on a machine without CUDA toolkit or driver: `python
.ci/build_pycuda.py FOLDER`. FOLDER gets a libcuda.so.1 that knows of no GPU.

The headers are those of PyPI's nvidia-cuda-runtime and nvidia-cuda-profiler-api, which must be installed. What it
builds is for tests of PyCUDA's interface: not optimized, and without cuRAND. Boost.Python's sources, which are most of
PyCUDA, are compiled as one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

PYCUDA = "pycuda==2026.1"
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""


def main(folder: Path) -> None:
    """Build and install it, unless it is there and the folder has its library."""
    stub = folder / "libcuda.so"
    if stub.exists() and find_spec("pycuda"):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pip("download", "-q", "--no-deps", "--no-build-isolation", "--no-binary=pycuda", "-d", folder, PYCUDA)
    (archive,) = folder.glob("pycuda-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    source = folder / archive.name.removesuffix(".tar.gz")
    at_once(source / "bpl-subset" / "bpl_subset")
    (toolkit,) = (Path(place) for place in nvidia() if (Path(place) / "include" / "cuda.h").is_file())
    link(stub, [])
    settings = {
        "CUDA_ROOT": str(toolkit),
        "CUDA_ENABLE_CURAND": False,
        "CUDADRV_LIB_DIR": [str(folder)],
        "CXXFLAGS": ["-O0", "-g0", "-w"],
    }
    (source / "siteconf.py").write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    pip("install", "-q", "--no-build-isolation", "--no-cache-dir", source)
    link(stub, called(folder))


def nvidia() -> list[str]:
    """The folders cu13 and the like of NVIDIA's packages."""
    spec = find_spec("nvidia")
    found = [Path(place) for place in (spec.submodule_search_locations or () if spec else ())]
    return [str(path) for place in found for path in place.glob("cu[0-9]*")]


def pip(*arguments: str | Path) -> None:
    """Run pip, which tells what it does only where it fails."""
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}")


def at_once(boost: Path) -> None:
    """Have PyCUDA's setup.py find one source that includes all of Boost.Python's."""
    python = boost / "libs" / "python"
    (python / "src").rename(boost / "python_src")
    sources = sorted(path.relative_to(boost) for path in (boost / "python_src").rglob("*.cpp"))
    (python / "all.cpp").write_text("".join(f'#include "{source}"\n' for source in sources))


def called(folder: Path) -> list[str]:
    """The functions of the driver that PyCUDA calls."""
    code = "import importlib.util as util; print(util.find_spec('pycuda._driver').origin)"
    library = subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True)
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", library.stdout.strip()], check=True, capture_output=True, text=True
    )
    words = (line.split()[-1] for line in symbols.stdout.splitlines())
    return [word for word in words if word.startswith("cu")]


def link(stub: Path, functions: list[str]) -> None:
    """Make the library: each function says that there is no device, in words too."""
    named = "cuGetErrorString"
    text = [f"int {name}(void) {{ return {NO_DEVICE}; }}" for name in functions if name != named]
    text.append(f'int {named}(int e, const char **said) {{ *said = "no CUDA-capable device is detected"; return 0; }}')
    source = stub.with_suffix(".c")
    source.write_text("\n".join(text) + "\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", stub, source], check=True)
    loaded = stub.with_name("libcuda.so.1")
    loaded.unlink(missing_ok=True)
    loaded.symlink_to(stub.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
