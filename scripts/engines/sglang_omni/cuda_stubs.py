"""Let the PyPI torch wheel load on a machine without CUDA, without gigabytes of nvidia-* wheels.

The Linux wheel of torch is linked against the CUDA libraries although a CPU run never calls
them. For each such library that is missing this writes an empty one whose functions return
an error code, so that torch reports "no GPU" and its CPU part works.

Usage: python cuda_stubs.py SITE_PACKAGES    (needs cc, nm and readelf)
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

# cudaErrorInsufficientDriver: what a real runtime answers where there is no driver. Non-zero in every other CUDA library too.
ERROR_CODE = 35
CUDA_LIBRARY = re.compile(r"^lib(cu|nv|nccl)[A-Za-z_]*\.so\.\d+$")
# C names only: the C++ names that start alike belong to torch itself.
CUDA_SYMBOL = re.compile(r"^(__cuda|cuda|cu[A-Z]|cublas|cudnn|cufft|curand|cusolver|cusparse|cupti|nccl|nvrtc|nvshmem|nvJit)")


def needed(lib: Path) -> list[str]:
    """Names of the shared libraries that lib is linked against."""
    out = subprocess.run(["readelf", "-d", lib], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+?)\]", out)


def undefined(lib: Path) -> list[tuple[str, str]]:
    """(symbol, version or "") that lib expects from elsewhere, CUDA ones only."""
    out = subprocess.run(["nm", "-D", "--undefined-only", lib], check=True, capture_output=True, text=True).stdout
    found = []
    for line in out.splitlines():
        symbol, _, version = line.split()[-1].partition("@")
        if CUDA_SYMBOL.match(symbol):
            found.append((symbol, version.lstrip("@")))
    return found


def build(lib_dir: Path, soname: str, symbols: dict[str, str]) -> None:
    """Compile one stand-in library that defines symbols (name -> version or "")."""
    with tempfile.TemporaryDirectory() as tmp:
        source, script = Path(tmp, "stub.c"), Path(tmp, "stub.map")
        source.write_text("".join(f"int {s}(void) {{ return {ERROR_CODE}; }}\n" for s in symbols))
        versions: dict[str, list[str]] = {}
        for symbol, version in symbols.items():
            if version:
                versions.setdefault(version, []).append(symbol)
        script.write_text("".join(f"{v} {{ global: {'; '.join(names)}; }};\n" for v, names in versions.items()))
        command = ["cc", "-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{soname}", "-o", str(lib_dir / soname), str(source)]
        if versions:
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)


def main(site_packages: str) -> int:
    lib_dir = Path(site_packages, "torch", "lib")
    libs = sorted(lib_dir.glob("*.so"))
    missing: set[str] = set()
    symbols: dict[str, str] = {}
    for lib in libs:
        missing.update(n for n in needed(lib) if CUDA_LIBRARY.match(n) and n != "libcuda.so.1" and not (lib_dir / n).exists())
        symbols.update(undefined(lib))
    by_library: dict[str, dict[str, str]] = {name: {} for name in missing}
    if not by_library:
        return 0
    # The loader checks a versioned name against its own library; a name without a version resolves from
    # any loaded one, so those all go into the one that everything links against.
    home = next((n for n in sorted(missing) if n.startswith("libcudart")), sorted(missing)[0])
    for symbol, version in symbols.items():
        stem = "lib" + version.lower()
        owner = version if version in by_library else next((n for n in sorted(missing) if version and n.startswith(stem)), home)
        by_library[owner][symbol] = version
    for name, members in by_library.items():
        build(lib_dir, name, members)
    print(f"cuda_stubs: {len(by_library)} empty libraries with {len(symbols)} functions in {lib_dir}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
