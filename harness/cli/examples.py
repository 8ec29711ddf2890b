"""Examples for each command: what its --help ends with."""

from __future__ import annotations

from tritmark.harness.cli.exit_status import AMBIGUOUS, FAILED, UNJUDGED

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "run": (
        ("tritmark run", "every kernel on the suite quick, a Record and a report"),
        ("tritmark run --suite smoke --op 'i2s_*'", "a few seconds, some ops only"),
        ("tritmark run --suite speed --variant avx512 --threads 2", "what one instruction set reaches"),
        ("tritmark run --weights model.safetensors", "what quantization does to real weights"),
        ("tritmark run --weights model.gguf", "a BitNet model's layers as they are stored, and their sum"),
        ("tritmark run --strict", f"for a CI: status {AMBIGUOUS} or {UNJUDGED} where a verdict could not be had"),
        ("tritmark run --resume", "go on with what Ctrl-C interrupted"),
    ),
    "check": (
        ("tritmark check my_i2s_quantize.c", "all four verdicts, beside the best built-in kernel"),
        ("tritmark check my_kernels.py --op 'ternary_*' --suite full", "some ops of a file, on all shapes"),
        ("tritmark check my_i2s_quantize.c --dimension accuracy", "is it right? no more, in seconds"),
        ("tritmark check my_i2s_quantize.c --strict", "for a CI: what could not be judged is not let through either"),
    ),
    "new": (
        ("tritmark new i2s_quantize --kind c", "my_i2s_quantize.c and its manifest"),
        (
            "tritmark new ternary_matmul --kind c --format i2_s_x86",
            "one that reads weights as bitnet.cpp packs them",
        ),
        ("tritmark new ternary_matmul --kind cu --out kernels", "a CUDA kernel, in a folder that exists or is made"),
    ),
    "gate": (
        ("tritmark gate main HEAD", "did the last commits slow a kernel down?"),
        ("tritmark gate main HEAD --op ternary_matmul --budget 5", "one op, with more time to tell small effects"),
        (
            "tritmark gate main HEAD --strict --format junit --out gate.xml",
            "for a CI: what is too noisy to say is not let through either",
        ),
    ),
    "history": (
        ("tritmark history", "every step that is still there, with its commits"),
        ("tritmark history --since main~20", "of the last twenty commits"),
        ("tritmark history --all --json", "for scripts, those that were reverted too"),
    ),
    "tune": (
        ("tritmark tune variants ternary_matmul --shape M=1,N=2560,K=2560", "the best kernel and format for a layer"),
        ("tritmark tune instances --suite speed", "the best instances of CUDA kernels"),
        ("tritmark tune prefetch", "how far ahead this machine prefetches weights best"),
    ),
    "tune variants": (
        (
            "tritmark tune variants ternary_matmul --shape M=1,N=2560,K=2560 --why",
            "each candidate, and what became of it",
        ),
        (
            "tritmark tune variants ternary_matmul --shape M=1,N=2560,K=2560 --requirement memory",
            "the format of the fewest bytes, and its quickest kernel",
        ),
        ("tritmark tune variants activation_quantize --shape M=8,K=2560 --threads 1", "for calls on one thread"),
    ),
    "tune instances": (
        ("tritmark tune instances --shape 16,2560,2560 --shape 512,14336,4096", "the best instances for two products"),
        ("tritmark tune instances --suite speed --seconds 600", "for every measured shape of a suite, in ten minutes"),
    ),
    "tune prefetch": (
        ("tritmark tune prefetch", "how far ahead weights are fetched on this machine, and what that buys"),
        ("tritmark tune prefetch --threads 1 --seconds 60", "with one thread, more exactly"),
        ("tritmark tune prefetch --json", "for scripts"),
    ),
    "advise": (
        ("tritmark advise", "what to change next, from the newest Record"),
        ("tritmark advise --list", "every rule, with its record of promises kept"),
        ("tritmark advise --ncu profile.csv", "with Nsight Compute's counters beside it"),
    ),
    "frame": (
        ("tritmark frame --to csv --out runs.csv", "every Record under results/, a row for each Run"),
        ("tritmark frame 'results/runs/*.json' --samples --to parquet --out samples.parquet", "a row for each sample"),
        ("tritmark frame --columns", "what the columns hold, with their units"),
    ),
    "formats": (
        ("tritmark formats", "are the packers right, and what can be repacked into what?"),
        ("tritmark formats --json", f"for scripts, with every reason; exit status {FAILED} where something is wrong"),
    ),
    "report": (
        ("tritmark report --open", "the page of the newest Record, in the browser"),
        ("tritmark report new.json --against old.json", "two Records of one machine, compared"),
        ("tritmark report --format md > report.md", "for a pull request"),
        ("tritmark report --all", "a page over all Records"),
    ),
    "league": (
        ("tritmark league", "products at one layer of a model, for 1, 16 and 128 tokens, beside the best"),
        ("tritmark league --device cuda", "the GPU's kernels alone"),
        ("tritmark league --peer bitnet.cpp=build/libbitnet.so", "bitnet.cpp among them, as you have built it"),
        ("tritmark league results/runs/ID.json", "the same of what a Record has, without ratios taken by turns"),
    ),
    "precision": (
        ("tritmark precision", "fp32, fp16 and bf16 on the GPU: time, error, memory, copies"),
        ("tritmark precision 512x13824x2560 --error 1e-3", "the fastest that is as exact as that"),
    ),
    "verify": (
        ("tritmark verify", "the newest Record: digest, receipts and figures"),
        ("tritmark verify results/baselines/cpu-zen4-2-cores.speed.json", "another one"),
    ),
    "doctor": (
        ("tritmark doctor", "what of this machine spoils figures, and what to do about it"),
        ("tritmark doctor --json", f"for scripts; exit status {FAILED} where something has to be mended"),
    ),
    "convert": (
        ("tritmark convert model.gguf model.safetensors --format hf_pack", "from I2_S to what transformers reads"),
        ("tritmark convert hf:OWNER/NAME model.gguf --format i2_s_x86", "the other way, or from bf16 master weights"),
        ("tritmark convert arm.gguf x86.gguf --layout arm --format i2_s_x86", "between the builds of bitnet.cpp"),
    ),
    "compare": (("tritmark compare model.gguf model.safetensors", "is it the same model?"),),
    "list": (
        ("tritmark list ops", "the contracts"),
        ("tritmark list variants", "the kernels, and which of them this machine can run"),
    ),
    "machine": (("tritmark machine", "what this machine is, and what it can do at most"),),
    "schema": (("tritmark schema > record.schema.json", "for whoever reads Records with other tools"),),
    "selftest": (
        ("tritmark selftest --op 'i2s_*'", "what share of mutants is found"),
        ("tritmark selftest --bugs", "are the faults found that users of such kernels reported in public?"),
    ),
    "soak": (("tritmark soak --minutes 30", "random Runs whose processes are killed meanwhile"),),
}


def epilog(command: str) -> str | None:
    """What the help of that command ends with; None for one without examples."""
    examples = EXAMPLES.get(command, ())
    if not examples:
        return None
    # Typer makes a line of what stands between empty lines.
    return "\n\n".join(["Examples:", *(f"{line}  # {meaning}" for line, meaning in examples)])
