"""The C kernel as a shared library beside the Python files. ctypes opens it, so it does not use Python's API."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "tritmark_base3._matmul", ["src/tritmark_base3/matmul.c"], extra_compile_args=["-O3", "-Wall", "-Wextra"]
        )
    ]
)
