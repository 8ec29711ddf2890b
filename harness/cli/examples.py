"""Examples at the end of the --help of each command."""

from __future__ import annotations

from tritmark.harness.cli.exit_status import AMBIGUOUS, FAILED, UNJUDGED

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "run": (
        ("tritmark run", "every kernel on the suite quick; a Record and a report"),
        ("tritmark run --suite smoke --op 'i2s_*'", "a few seconds, some ops only"),
        ("tritmark run --suite speed --variant avx512 --threads 2", "the speed of one instruction set"),
        ("tritmark run --weights model.safetensors", "the effect of quantization on real weights"),
        ("tritmark run --weights model.gguf", "a BitNet model's layers as stored, and the sum of their times"),
        ("tritmark run --strict", f"for CI: exit with {AMBIGUOUS} or {UNJUDGED} if a verdict is open"),
        ("tritmark run --resume", "continue the newest interrupted run"),
    ),
    "check": (
        ("tritmark check my_i2s_quantize.c", "all four verdicts, beside the best built-in kernel"),
        ("tritmark check my_kernels.py --op 'ternary_*' --suite full", "some ops of a file, on all shapes"),
        ("tritmark check my_i2s_quantize.c --dimension accuracy", "is it correct? in seconds"),
        ("tritmark check my_i2s_quantize.c --strict", "for CI: fail on an open verdict, too"),
        ("tritmark check my_i2s_quantize.c --json=verdict", "one small object with code, score and next steps"),
    ),
    "new": (
        ("tritmark new i2s_quantize --kind c", "my_i2s_quantize.c and its manifest"),
        (
            "tritmark new ternary_matmul --kind c --format i2_s_x86",
            "a kernel for weights as bitnet.cpp packs them",
        ),
        ("tritmark new ternary_matmul --kind cu --out kernels", "a CUDA kernel in the folder kernels"),
    ),
    "gate": (
        ("tritmark gate main HEAD", "did the last commits slow a kernel down?"),
        ("tritmark gate main HEAD --op ternary_matmul --budget 5", "one op, with more time to detect small effects"),
        (
            "tritmark gate main HEAD --strict --format junit --out gate.xml",
            "for CI: fail on results that are too noisy, too",
        ),
    ),
    "history": (
        ("tritmark history", "every regression that was not reverted, with its commits"),
        ("tritmark history --since main~20", "regressions of the last twenty commits"),
        ("tritmark history --all --json", "for scripts, with reverted regressions"),
        ("tritmark history --unmeasured 10", "every tenth new commit, for asv run HASHFILE:-"),
    ),
    "tune": (
        ("tritmark tune variants ternary_matmul --shape M=1,N=2560,K=2560", "the best kernel and format for a layer"),
        ("tritmark tune instances --suite speed", "the best instances of CUDA kernels"),
        ("tritmark tune prefetch", "the best prefetch distance of this machine"),
    ),
    "tune variants": (
        (
            "tritmark tune variants ternary_matmul --shape M=1,N=2560,K=2560 --why",
            "the fate of each candidate",
        ),
        (
            "tritmark tune variants ternary_matmul --shape M=1,N=2560,K=2560 --requirement memory",
            "the smallest format and its fastest kernel",
        ),
        ("tritmark tune variants activation_quantize --shape M=8,K=2560 --threads 1", "for calls on one thread"),
    ),
    "tune instances": (
        ("tritmark tune instances --shape 16,2560,2560 --shape 512,14336,4096", "the best instances for two products"),
        ("tritmark tune instances --suite speed --seconds 600", "every measured shape of a suite, in ten minutes"),
    ),
    "tune prefetch": (
        ("tritmark tune prefetch", "the best prefetch distance of this machine, and its gain"),
        ("tritmark tune prefetch --threads 1 --seconds 60", "one thread, with less noise"),
        ("tritmark tune prefetch --json", "for scripts"),
    ),
    "sweep": (
        ("tritmark sweep ternary_matmul --axis M=1..4096", "the best kernel of each format, and where it changes"),
        (
            "tritmark sweep i2s_quantize --axis n=1024..1048576:x4 --variant 'avx*' --out sweep.png",
            "some variants, as a picture",
        ),
        (
            "tritmark sweep ternary_matmul --axis M=1,16 --axis K=256..8192 --format 'tile64*' --frame sweep.csv",
            "a picture for each M over K, and a table",
        ),
    ),
    "advise": (
        ("tritmark advise", "proposals for the newest Record"),
        ("tritmark advise --list", "every rule, with its record of kept predictions"),
        ("tritmark advise --ncu profile.csv", "with the counters of Nsight Compute"),
    ),
    "frame": (
        ("tritmark frame --to csv --out runs.csv", "every Record under results/, a row for each Run"),
        ("tritmark frame 'results/runs/*.json' --samples --to parquet --out samples.parquet", "a row for each sample"),
        ("tritmark frame --columns", "the columns, with their units"),
    ),
    "formats": (
        ("tritmark formats", "are the packers correct, and which repackings are exact?"),
        ("tritmark formats --json", f"for scripts, with every reason; exits with {FAILED} if a packer is incorrect"),
    ),
    "report": (
        ("tritmark report --open", "the page of the newest Record, in the browser"),
        ("tritmark report new.json --against old.json", "two Records of one machine, compared"),
        ("tritmark report --format md > report.md", "for a pull request"),
        ("tritmark report --all", "a page over all Records"),
    ),
    "model": (
        ("tritmark model models/bitnet-b1.58-2B-4T", "one sequence behind a prompt of 128 tokens, beside transformers"),
        ("tritmark model FOLDER --device cuda --batch 1 --batch 32 --prompt 2048", "on a GPU"),
        (
            "tritmark model FOLDER --activation-bits 8 --text 'Once upon a time'",
            "also linear layers with ternary floats",
        ),
        ("tritmark model FILE.gguf --engine llama-bench=PATH", "beside the engine of a build, run by run"),
        ("tritmark model FOLDER --logits FILE.npz", "judge another engine's logits of the same weights, too"),
    ),
    "league": (
        ("tritmark league", "products of one layer of a model, for 1, 16 and 128 tokens"),
        ("tritmark league --device cuda", "only the GPU's kernels"),
        ("tritmark league --peer bitnet.cpp=build/libbitnet.so", "with your build of bitnet.cpp"),
        ("tritmark league results/runs/ID.json", "from an existing Record, without interleaved ratios"),
        ("tritmark league --collect records --out site", "a static site of all signed Records of a folder"),
    ),
    "fleet": (
        ("tritmark fleet run --scheduler tcp://10.0.0.5:8786", "every kind of machine of the cluster"),
        ("tritmark fleet compare", "which kernel is the fastest where?"),
    ),
    "fleet run": (
        ("tritmark fleet run --scheduler tcp://10.0.0.5:8786 --suite smoke", "seconds for each op and kind of machine"),
        ("tritmark fleet run --scheduler tcp://10.0.0.5:8786 --kind 'cuda/*' --op 'ternary_*'", "only some"),
    ),
    "fleet compare": (
        ("tritmark fleet compare", "the newest set: table and page"),
        ("tritmark fleet compare NEW --against OLD", f"exits with {FAILED} if a figure is slower"),
        ("tritmark fleet compare ID ../other/results --json", "several sets as one, for scripts"),
    ),
    "precision": (
        ("tritmark precision", "fp32, fp16 and bf16 on the GPU: time, error, memory, copies"),
        ("tritmark precision 512x13824x2560 --error 1e-3", "the fastest within that error"),
    ),
    "criteria": (
        ("tritmark criteria", "which criteria does this machine meet? about two minutes"),
        ("tritmark criteria --device cpu --seed 7", "the CPU's kernels beside a GPU, with the data of an earlier run"),
        ("tritmark criteria --json > criteria.json", f"for scripts; exits with {FAILED} if a criterion fails"),
    ),
    "monitor": (("tritmark monitor report", "its sessions of the last seven days"),),
    "monitor report": (
        ("tritmark monitor report --since 24h", "what ran since yesterday, and is it slower?"),
        ("tritmark monitor report --since 4w --format html", "a page with the trends of each kernel"),
        ("tritmark monitor report --program serve.py --format json", f"for scripts; exits with {FAILED} if slower"),
    ),
    "verify": (
        ("tritmark verify", "the newest Record: digest, receipts and figures"),
        ("tritmark verify results/baselines/cpu-zen4-2-cores.speed.json", "a stored baseline"),
        ("tritmark verify RECORD --trusted allowed_signers", "also that a trusted signer signed it"),
    ),
    "sign": (("tritmark sign results/runs/ID.json --key ~/.ssh/id_ed25519", "writes ID.json.sig beside it"),),
    "doctor": (
        ("tritmark doctor", "what disturbs measurements here, and how to fix it"),
        ("tritmark doctor --json", f"for scripts; exits with {FAILED} if something must be fixed"),
    ),
    "health": (
        ("tritmark health", "GPUs, memory pools, disk and noise; what changed since the last probe"),
        ("tritmark health --passive --json", "for a probe of production: reads sensors, runs nothing"),
        ("tritmark health --device cuda --strict", f"exit with {FAILED} for critical, {AMBIGUOUS} for a warning"),
        ("tritmark health --history", "earlier probes"),
    ),
    "errors": (
        ("tritmark errors", "failures of kernels that programs recovered from, and what to do"),
        ("tritmark errors --since 2026-11-29 --json", "for scripts"),
    ),
    "convert": (
        ("tritmark convert model.gguf model.safetensors --format hf_pack", "from I2_S to the format of transformers"),
        ("tritmark convert hf:OWNER/NAME model.gguf --format i2_s_x86", "the reverse, or from bf16 master weights"),
        ("tritmark convert arm.gguf x86.gguf --layout arm --format i2_s_x86", "between builds of bitnet.cpp"),
    ),
    "compare": (
        ("tritmark compare model.gguf model.safetensors", "is it the same model?"),
        ("tritmark compare old.json new.json --plot speed.svg", "two Records: which kernels became slower"),
    ),
    "list": (
        ("tritmark list ops", "the contracts"),
        ("tritmark list variants --op i2s_quantize", "its kernels, and whether this machine can run them"),
    ),
    "machine": (("tritmark machine", "facts of this machine and its measured ceilings"),),
    "mcp": (("tritmark mcp", "for an agent that starts it; the guide has the configuration"),),
    "schema": (
        ("tritmark schema > record.schema.json", "for tools that read Records"),
        ("tritmark schema verdict > verdict.schema.json", "for those that read verdicts"),
    ),
    "selftest": (
        ("tritmark selftest --op 'i2s_*'", "the share of mutants that is detected"),
        ("tritmark selftest --bugs", "are faults detected that were reported in public?"),
        ("tritmark selftest --formats", "are faults of packers and unpackers detected?"),
    ),
    "soak": (
        ("tritmark soak --minutes 30", "random Runs whose processes are killed"),
        ("tritmark soak --runs 1000", "crashes, full disks, corrupt caches and more: are they survived and named?"),
    ),
}


def epilog(command: str) -> str | None:
    """The end of the command's help; None without examples."""
    examples = EXAMPLES.get(command, ())
    if not examples:
        return None
    # Typer joins the lines of a paragraph.
    return "\n\n".join(["Examples:", *(f"{line}  # {meaning}" for line, meaning in examples)])
