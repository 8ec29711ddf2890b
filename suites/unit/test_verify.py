"""`tritmark verify`: an honest Record passes, and each way of lying in one is found, an edited byte first of all."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome, outcome_of, status_of
from hypothesis import given
from hypothesis import strategies as st

from tritmark.harness import providers
from tritmark.harness.errors import RecordError
from tritmark.harness.machine.reading import Reading
from tritmark.harness.measure import ceilings
from tritmark.harness.providers import Installed
from tritmark.harness.record import (
    SCHEMA_VERSION,
    DeviceStatus,
    Layer,
    MachineLoad,
    Measurement,
    NotJudged,
    NotJudgedKind,
    Record,
    Run,
    SensorRange,
    Status,
    UnitSensors,
    read_digest,
    with_digest,
)
from tritmark.harness.spec import Receipt, Variant
from tritmark.harness.store import read
from tritmark.harness.text.groups import counted
from tritmark.harness.verify import check, verify
from tritmark.kernels import PROVIDER
from tritmark.kernels.native.cpu import DEVICE, FORCE

BASELINE = Path(__file__).parents[2] / "results" / "baselines" / "older" / "cpu-zen4-2-cores.speed.json"


def faults(record: Record, *, allow_simulated: bool = False) -> dict[str, tuple[str, ...]]:
    """Each check that failed, and why."""
    return {each.name: each.faults for each in check(record, allow_simulated=allow_simulated) if each.faults}


def on_gpu(record: Record) -> int:
    """Index of a Run on the GPU that was measured."""
    return next(index for index, run in enumerate(record.runs) if run.device == "cuda" and run.performance.cold)


def with_run(record: Record, index: int, **update: Any) -> Record:
    runs = list(record.runs)
    runs[index] = runs[index].model_copy(update=update)
    return record.model_copy(update={"runs": tuple(runs)})


def with_receipt(record: Record, **update: Any) -> Record:
    index = on_gpu(record)
    receipt = record.runs[index].receipt
    assert receipt is not None
    return with_run(record, index, receipt=replace(receipt, **update))


def with_cold(record: Record, index: int, change: Callable[[Measurement], Measurement]) -> Record:
    performance = record.runs[index].performance
    assert performance.cold is not None
    return with_run(record, index, performance=performance.model_copy(update={"cold": change(performance.cold)}))


@pytest.fixture
def file(gpu_record: Record, tmp_path: Path) -> Path:
    path = tmp_path / "record.json"
    path.write_text(with_digest(gpu_record))
    return path


# What is honest passes


def test_an_honest_record_passes(file: Path, gpu_record: Record) -> None:
    found = verify(file)
    assert found.passed, found
    assert found.id == gpu_record.id
    assert [each.status for each in found.checks] == ["PASS"] * 11


def test_a_record_of_version_1_passes_without_a_digest() -> None:
    if not BASELINE.exists():
        pytest.skip("the checkout's baselines are not here")
    found = verify(BASELINE)
    assert found.passed, found
    assert [each.status for each in found.checks] == ["NOTE", *["PASS"] * 10]
    assert "written before version 2" in found.checks[0].detail


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Runs one op as the command line does, without measuring ceilings, and gives the Record's path."""

    def run(*arguments: str) -> Path:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv(FORCE, raising=False)
        monkeypatch.setattr(ceilings, "measure_ceilings", lambda device: [])
        Path("suite.toml").write_text(
            'title = "t"\n[[workloads]]\nop = "i2s_quantize"\nshapes = [{ n = 4096 }]\nmeasure = true\n'
        )
        status_of(monkeypatch, "run", "--suite", "suite.toml", *arguments)
        (path,) = (tmp_path / "results" / "runs").iterdir()
        return path

    return run


@pytest.mark.timing
def test_a_record_of_this_machine_passes(ran: Callable[..., Path]) -> None:
    """From the command line to the verdict, with measured figures."""
    found = verify(ran("--device", "cpu", "--variant", "scalar"))
    assert found.passed, found
    assert "receipts: 0 Runs claim" in str([each.lines for each in found.checks])


def test_the_samples_of_the_probe_are_kept(gpu_record: Record) -> None:
    for run in gpu_record.runs:
        if run.performance.cold:
            assert len(run.performance.cold.against.probe_ns) == len(run.performance.cold.timing.samples_ns)


# The digest


def test_a_file_ends_with_its_digest(gpu_record: Record) -> None:
    text = with_digest(gpu_record)
    found = read_digest(text.encode())
    assert found is not None
    assert found.unchanged
    assert Record.model_validate_json(text).digest == found.claimed
    assert with_digest(Record.model_validate_json(text)) == text


def _refused(data: bytes, folder: Path) -> bool:
    path = folder / "edited.json"
    path.write_bytes(data)
    try:
        return not verify(path).passed
    except RecordError:
        return True


@given(data=st.data())
def test_any_changed_byte_is_found(
    simulated_record: Record, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = with_digest(
        simulated_record.model_copy(update={"runs": simulated_record.runs[:1], "lanes": simulated_record.lanes[:1]})
    ).encode()
    folder = tmp_path_factory.getbasetemp()
    assert not _refused(whole, folder)
    at = data.draw(st.one_of(st.integers(0, len(whole) - 1), st.integers(len(whole) - 100, len(whole) - 1)))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[at]))
    assert _refused(whole[:at] + bytes([byte]) + whole[at + 1 :], folder)


def test_a_file_is_small_and_says_all(file: Path) -> None:
    """A Run a line, no defaults; what is read back is what was written."""
    text, record = file.read_text(), read(file)
    assert text == with_digest(record)
    assert len(text) < 0.7 * len(record.model_dump_json(indent=1))
    runs = [line for line in text.splitlines() if line.startswith('{"id":')]
    assert [json.loads(line.rstrip(","))["id"] for line in runs] == [run.id for run in record.runs]
    assert '"first":null' not in text
    assert json.loads(text)["schema_version"] == SCHEMA_VERSION
    for version in range(1, SCHEMA_VERSION + 1):
        older = record.model_copy(update={"schema_version": version, "digest": ""})
        assert Record.model_validate_json(with_digest(older)).model_copy(update={"digest": ""}) == older


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text[:-1],
        lambda text: text + "\n",
        lambda text: text.replace('"seed":20250311', '"seed":20250312', 1),
        lambda text: text.replace(f'"schema_version":{SCHEMA_VERSION}', '"schema_version":1'),
        lambda text: json.dumps(json.loads(text)),
        lambda text: json.dumps({**json.loads(text), "digest": ""}, indent=1),
        lambda text: (
            text.replace(f'"schema_version":{SCHEMA_VERSION}', '"schema_version":1').rpartition(',\n "digest"')[0]
            + "\n}\n"
        ),
    ],
)
def test_an_edited_file_is_found(file: Path, edit: Callable[[str], str]) -> None:
    """The last one is a Record of version 1 then, and such a Record cannot claim a GPU."""
    file.write_text(edit(file.read_text()))
    assert not verify(file).passed


def test_what_can_no_longer_be_read_was_changed(file: Path) -> None:
    file.write_text(file.read_text().replace('"suite"', '"siute"'))
    found = verify(file)
    assert [each.status for each in found.checks] == ["FAIL", "FAIL"]


@pytest.mark.parametrize("content", ["", "{}", "not JSON", '{"schema_version": 4}', '{"digest": "sha256:0"}'])
def test_what_is_no_record_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(RecordError):
        verify(path)
    with pytest.raises(RecordError, match="No such file"):
        verify(tmp_path / "none.json")


# A CPU behind a GPU's claim


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ({"kernel": "cpu/i2s_quantize/none/int8/avx512"}, "is a kernel of the host"),
        ({"ran": "avx512"}, "avx512 ran in place of"),
        ({"launches": 0}, "0 launches for 4 runs"),
        ({"launches": 3}, "3 launches for 4 runs"),
        ({"runs": 0, "launches": 0, "timed_runs": 0}, "0 launches for 0 runs"),
        ({"uuid": ""}, "is not a uuid of a GPU"),
        ({"uuid": "GPU-ffffffff-4455-6677-8899-aabbccddeeff"}, "is not a GPU of this machine"),
        ({"uuid": "SIMULATOR"}, "simulated is False"),
        ({"simulated": True}, "simulated is True"),
        ({"functions": ()}, "it launched no function"),
        ({"functions": ("i2s_quantize_avx512",)}, "functions of cuda begin with"),
        ({"functions": ("i2s_gpu_quantize_mock",)}, "replaces a kernel"),
        ({"device_ns": 0.0}, "the device measured 0 ns"),
        ({"timed_runs": 0}, "for 0 of 4 runs"),
        ({"timed_runs": 9}, "for 9 of 4 runs"),
        ({"code_hash": ""}, "not a SHA-256 of a binary"),
        (
            {"code_hash": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
            "not a SHA-256 of a binary",
        ),
        ({"native": False}, "replaced by dequantized computation"),
        ({"threads": 0}, "runs on 0 of"),
    ],
)
def test_a_cpu_behind_a_gpu_is_found(gpu_record: Record, lie: dict[str, Any], said: str) -> None:
    found = faults(with_receipt(gpu_record, **lie))
    assert any(said in fault for each in found.values() for fault in each), found


def test_a_pass_of_a_throttled_gpu_is_found(gpu_record: Record) -> None:
    def timed(*reasons: str) -> Record:
        hot = Reading(throttle=reasons)
        sensors = UnitSensors(unit="GPU-1", before=Reading(), during=SensorRange(), after=hot)
        load = MachineLoad(seconds=1.0, cores=1, sensors=(sensors,))
        return with_run(gpu_record, on_gpu(gpu_record), load=load)

    assert "the processor was throttled: hw_slowdown after" in str(faults(timed("hw_slowdown")))
    assert "throttled" not in str(faults(timed("sw_power_cap")))


def test_drawn_cases_have_thread_counts_of_their_own(gpu_record: Record) -> None:
    listed = with_receipt(gpu_record, threads=6)
    assert "6 of 1 threads" in str(faults(listed)["kernels"])
    index = on_gpu(gpu_record)
    facts = listed.runs[index].workload.model_copy(update={"axes": {}})
    assert "kernels" not in faults(with_run(listed, index, workload=facts))
    nine = with_run(with_receipt(gpu_record, threads=9), index, workload=facts)
    assert "9 of 8 threads" in str(faults(nine)["kernels"])


def test_functions_of_peers_have_any_name(gpu_record: Record) -> None:
    theirs = with_receipt(gpu_record, functions=("nvjet_hsh_128x256",))
    assert "nvjet_hsh_128x256" in str(faults(theirs)["receipts"])
    index = on_gpu(gpu_record)
    assert "receipts" not in faults(with_run(theirs, index, peer=True))
    nothing = with_run(with_receipt(gpu_record, functions=()), index, peer=True)
    assert "it launched no function" in str(faults(nothing)["receipts"])


def test_a_fallback_that_the_harness_ran_is_found(ran: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider calls the CPU's kernel cuda: accuracy passes, figures are measured, and the Record says cuda
    throughout."""

    def posing(variant: Variant) -> Variant:
        return replace(variant, key=replace(variant.key, device="cuda"), features=frozenset())

    variants = tuple(posing(each) for each in PROVIDER.variants if each.key.device == "cpu" and each.name == "scalar")
    provider = replace(PROVIDER, devices=(replace(DEVICE, type="cuda"),), variants=variants)
    monkeypatch.setattr(providers, "load", lambda candidates=(): Installed({"builtin": provider}))
    monkeypatch.delenv("TRITMARK_CUDA", raising=False)  # else the simulator would be what was asked for
    path = ran("--device", "cuda", "--in-process")  # no other process knows that provider
    (run,) = read(path).runs
    assert run.accuracy.status is Status.PASS
    assert run.performance.hot is not None
    found = verify(path)
    assert not found.passed
    told = str([each.faults for each in found.checks if each.name == "receipts"])
    for said in ("not a uuid of a GPU", "it launched no function", "0 launches for", "the device measured 0 ns"):
        assert said in told


def test_a_gpu_claim_without_a_receipt_is_found(gpu_record: Record) -> None:
    assert "without a receipt" in str(faults(with_run(gpu_record, on_gpu(gpu_record), receipt=None))["receipts"])


def test_a_cpu_kernel_under_a_gpu_s_name_is_found(gpu_record: Record) -> None:
    """The CPU's Run, renamed and nothing else."""
    index = next(index for index, run in enumerate(gpu_record.runs) if run.device == "cpu" and run.performance.cold)
    run = gpu_record.runs[index]
    kernel = run.kernel.replace("cpu/", "cuda/")
    assert run.receipt is not None
    renamed = with_run(
        gpu_record,
        index,
        device="cuda",
        kernel=kernel,
        id=run.id.replace("cpu/", "cuda/"),
        receipt=replace(run.receipt, kernel=kernel),
    )
    found = str(faults(renamed)["receipts"])
    assert "not a uuid of a GPU" in found
    assert "launches for" in found


@pytest.mark.parametrize("gpus", ["none", "faked"])
def test_a_gpu_that_the_machine_has_not_is_found(gpu_record: Record, gpus: str) -> None:
    there = () if gpus == "none" else tuple(replace(gpu, faked=True) for gpu in gpu_record.machine.gpus)
    facts = gpu_record.machine.model_copy(update={"gpus": there})
    assert len(faults(gpu_record.model_copy(update={"machine": facts}))["receipts"]) >= 22


def test_layers_cannot_claim_a_gpu(gpu_record: Record) -> None:
    layer = Layer(
        status=Status.PASS,
        name="w",
        shape=(2, 2),
        dtype="F32",
        bytes=16,
        kernel="cuda/ternary_matmul/tile64/float32/gemv",
    )
    assert "layer w: claims cuda" in str(faults(gpu_record.model_copy(update={"layers": (layer,)}))["receipts"])


# The simulator


def test_a_simulated_record_says_so_and_is_taken_only_when_asked_for(simulated_record: Record) -> None:
    assert list(faults(simulated_record)) == ["simulated"]
    assert "SIMULATED: proves correctness, claims no speed" in str(faults(simulated_record))
    assert not faults(simulated_record, allow_simulated=True)
    assert any(
        "SIMULATED" in each.lines[0] and each.status == "NOTE" for each in check(simulated_record, allow_simulated=True)
    )


def cleared(receipt: Receipt | None) -> Receipt:
    assert receipt is not None
    return replace(receipt, simulated=False)


def test_a_simulator_that_poses_as_a_gpu_is_found(simulated_record: Record, gpu_record: Record) -> None:
    index = next(index for index, run in enumerate(simulated_record.runs) if run.device == "cuda")
    run = simulated_record.runs[index]
    # The flag is cleared, the uuid stays.
    assert "receipts" in faults(with_run(simulated_record, index, receipt=cleared(run.receipt)), allow_simulated=True)
    # Flag and uuid are those of a GPU, and the environment says what was asked for.
    receipt = replace(cleared(run.receipt), uuid=gpu_record.machine.gpus[0].uuid, device_ns=5e6, timed_runs=1)
    posing = with_run(simulated_record, index, receipt=receipt)
    posing = posing.model_copy(update={"machine": gpu_record.machine})
    assert "TRITMARK_CUDA selects the simulator" in str(faults(posing, allow_simulated=True)["receipts"])
    # The lane's flag is cleared.
    lanes = tuple(DeviceStatus(device=lane.device, ran=True) for lane in simulated_record.lanes)
    assert "lanes" in faults(simulated_record.model_copy(update={"lanes": lanes}), allow_simulated=True)


def test_a_simulator_has_no_speed(simulated_record: Record, gpu_record: Record) -> None:
    index = next(index for index, run in enumerate(simulated_record.runs) if run.device == "cuda")
    figures = gpu_record.runs[on_gpu(gpu_record)].performance
    fast = with_run(simulated_record, index, performance=figures)
    assert "claims a speed" in str(faults(fast, allow_simulated=True)["simulated"])
    receipt = simulated_record.runs[index].receipt
    assert receipt is not None
    timed = with_run(simulated_record, index, receipt=replace(receipt, device_ns=1.0))
    assert "claims a time of a device" in str(faults(timed, allow_simulated=True)["simulated"])
    rated = simulated_record.model_copy(update={"machine": gpu_record.machine})
    assert "claims a rate" in str(faults(rated, allow_simulated=True)["simulated"])


# Figures


def scaled(factor: float, *, probe: float = 1.0) -> Callable[[Measurement], Measurement]:
    """A figure that is so many times as long in all that follows from its samples, as a careful liar would write it."""

    def change(footing: Measurement) -> Measurement:
        timing, against = footing.timing, footing.against
        times = {name: getattr(timing, name) * factor for name in ("median_ns", "q1_ns", "q3_ns", "low_ns", "high_ns")}
        part = {name: getattr(against.fraction, name) * probe / factor for name in ("median", "low", "high")}
        return footing.model_copy(
            update={
                "timing": timing.model_copy(
                    update={**times, "samples_ns": tuple(sample * factor for sample in timing.samples_ns)}
                ),
                "against": against.model_copy(
                    update={
                        "fraction": against.fraction.model_copy(update=part),
                        "probe_ns": tuple(sample * probe for sample in against.probe_ns),
                        "rate": against.rate / probe,
                    }
                ),
            }
        )

    return change


def largest(record: Record) -> int:
    moved = [run.performance.read if run.device == "cuda" and run.performance.cold else 0 for run in record.runs]
    return moved.index(max(moved))


def test_a_careful_scaling_is_consistent(gpu_record: Record) -> None:
    """What the next test plants is found for its speed, and for nothing else."""
    assert not faults(with_cold(gpu_record, largest(gpu_record), scaled(1.5, probe=1.2)))


@pytest.mark.parametrize("probe", [1.0, 0.3])
def test_an_impossible_bandwidth_is_found(gpu_record: Record, probe: float) -> None:
    """With the probe made just as fast, the memory's clock and width still say no."""
    found = faults(with_cold(gpu_record, largest(gpu_record), scaled(0.3, probe=probe)))
    assert list(found) == ["speeds"]
    assert "the memory's clock and width allow" in str(found["speeds"])
    if probe == 1.0:
        assert "and the fastest read probe takes" in str(found["speeds"])


def test_an_impossible_figure_in_the_cache_is_found(gpu_record: Record) -> None:
    """Few bytes, all in the L2: what was measured of it is the limit."""
    index = next(
        index
        for index, run in enumerate(gpu_record.runs)
        if run.device == "cuda" and run.workload.axes.get("n") == 1 << 24
    )
    performance = gpu_record.runs[index].performance
    assert performance.hot is not None
    # all of it stays in the L2, so the memory's peak is no limit
    small = performance.hot.model_copy(update={"rotation": 1})
    fast = scaled(0.1, probe=1.0)(small)
    found = faults(with_run(gpu_record, index, performance=performance.model_copy(update={"hot": fast})))
    assert "and the fastest measured is" in str(found["speeds"])


def test_an_impossible_device_time_is_found(gpu_record: Record) -> None:
    index = largest(gpu_record)
    receipt = gpu_record.runs[index].receipt
    assert receipt is not None
    found = faults(with_run(gpu_record, index, receipt=replace(receipt, device_ns=3 * 1000.0)))
    assert "moving its data takes" in str(found["speeds"])


def test_an_impossible_ceiling_is_found(gpu_record: Record) -> None:
    rates = tuple(each.model_copy(update={"rate": each.rate * 2}) for each in gpu_record.machine.ceilings)
    facts = gpu_record.machine.model_copy(update={"ceilings": rates})
    assert "ceiling cuda read" in str(faults(gpu_record.model_copy(update={"machine": facts}))["speeds"])


@pytest.mark.parametrize("field", ["median_ns", "q1_ns", "q3_ns"])
def test_a_figure_that_is_not_that_of_its_samples_is_found(gpu_record: Record, field: str) -> None:
    def change(footing: Measurement) -> Measurement:
        return footing.model_copy(
            update={"timing": footing.timing.model_copy(update={field: getattr(footing.timing, field) * 0.999})}
        )

    assert f"its {field.removesuffix('_ns')} is" in str(
        faults(with_cold(gpu_record, on_gpu(gpu_record), change))["figures"]
    )


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("rate", 1e12, "and that of the probe's samples"),
        ("work", 1, "is not the"),
        ("probe_ns", (1.0,), "samples of the probe"),
        ("ceiling", "write", "is not the"),
    ],
)
def test_a_ceiling_that_is_not_that_of_its_probe_is_found(
    gpu_record: Record, field: str, value: Any, said: str
) -> None:
    def change(footing: Measurement) -> Measurement:
        return footing.model_copy(update={"against": footing.against.model_copy(update={field: value})})

    assert said in str(faults(with_cold(gpu_record, on_gpu(gpu_record), change))["figures"])


@pytest.mark.parametrize("kept", [True, False])
def test_a_fraction_that_its_samples_do_not_have_is_found(gpu_record: Record, kept: bool) -> None:
    """Exactly where the probe's samples were kept; beyond bounds where they were not, as in version 1."""

    def change(footing: Measurement) -> Measurement:
        ratio = footing.against.fraction
        better = ratio.model_copy(update={"median": ratio.median * 1.2, "high": ratio.high * 1.2})
        probe = {} if kept else {"probe_ns": (), "probe_work": 0}
        return footing.model_copy(update={"against": footing.against.model_copy(update={"fraction": better, **probe})})

    assert "of the ceiling, and its" in str(faults(with_cold(gpu_record, on_gpu(gpu_record), change))["figures"])


def test_samples_that_took_longer_than_their_run_are_found(gpu_record: Record) -> None:
    assert "and the whole Run" in str(faults(with_run(gpu_record, on_gpu(gpu_record), seconds=0.001))["figures"])


def test_borrowed_samples_are_found(gpu_record: Record) -> None:
    large = (
        index
        for index, run in enumerate(gpu_record.runs)
        if run.device == "cuda" and run.workload.axes.get("n") == 1 << 28
    )
    first, second = next(large), next(large)
    performance = gpu_record.runs[first].performance
    assert "its samples are those of" in str(
        faults(with_run(gpu_record, second, performance=performance))["duplicates"]
    )


# Consistency


def test_doubled_runs_are_found(gpu_record: Record) -> None:
    found = faults(gpu_record.model_copy(update={"runs": (*gpu_record.runs, gpu_record.runs[0])}))
    assert "occurs 2 times" in str(found["duplicates"])


@pytest.mark.parametrize(
    ("lanes", "said"),
    [
        ((DeviceStatus(device="cpu", ran=True),), "cuda: it has Runs and no lane"),
        (
            (DeviceStatus(device="cpu", ran=True), DeviceStatus(device="cuda", ran=False, reason="no")),
            "the lane states that it did not run",
        ),
        (
            (
                DeviceStatus(device="cpu", ran=True),
                DeviceStatus(device="cuda", ran=True),
                DeviceStatus(device="rocm", ran=True),
            ),
            "and the Runs that it did not",
        ),
        (
            (
                DeviceStatus(device="cpu", ran=True),
                DeviceStatus(device="cuda", ran=True),
                DeviceStatus(device="rocm", ran=False),
            ),
            "no reason is given",
        ),
        (
            (DeviceStatus(device="cpu", ran=True), DeviceStatus(device="cuda", ran=True, simulated=True)),
            "its receipts differ",
        ),
    ],
)
def test_lanes_that_contradict_the_runs_are_found(
    gpu_record: Record, lanes: tuple[DeviceStatus, ...], said: str
) -> None:
    assert said in str(faults(gpu_record.model_copy(update={"lanes": lanes}))["lanes"])


def _accuracy(run: Run, **update: Any) -> dict[str, Any]:
    return {"accuracy": run.accuracy.model_copy(update=update)}


def _performance(run: Run, **update: Any) -> dict[str, Any]:
    return {"performance": run.performance.model_copy(update=update)}


@pytest.mark.parametrize(
    "edit",
    [
        lambda run: _accuracy(run, mismatches=3),
        lambda run: _accuracy(run, cases=0),
        lambda run: _accuracy(run, cases=9),
        lambda run: _accuracy(run, status=Status.NOT_RUN, reason="why"),
        lambda run: _accuracy(run, status=Status.FAIL, reason="why"),
        lambda run: _performance(run, status=Status.NOT_RUN, reason="why"),
        lambda run: _performance(run, cold=None, hot=None),
    ],
)
def test_statuses_that_contradict_their_contents_are_found(
    gpu_record: Record, edit: Callable[[Run], dict[str, Any]]
) -> None:
    index = on_gpu(gpu_record)
    assert faults(with_run(gpu_record, index, **edit(gpu_record.runs[index])))["statuses"]


def test_a_kernel_that_is_not_the_run_s_is_found(gpu_record: Record) -> None:
    assert faults(with_run(gpu_record, on_gpu(gpu_record), variant="other"))["kernels"]


# The command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def run(*arguments: str) -> Outcome:
        return outcome_of(monkeypatch, capsys, "verify", *arguments)

    return run


def test_the_command_prints_each_check_and_ends_with_its_status(
    command: Callable[..., Outcome],
    file: Path,
    gpu_record: Record,
    simulated_record: Record,
    tmp_path: Path,
) -> None:
    status, out, _ = command(str(file))
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == ["PASS"] * 11
    file.write_text(with_digest(with_receipt(gpu_record, launches=0)))
    status, out, _ = command(str(file))
    assert status == 1
    assert out.count("FAIL") == 1
    assert "FAIL receipts: cuda/i2s_quantize" in out
    file.write_text(with_digest(simulated_record))
    assert command(str(file))[0] == 1
    assert command(str(file), "--allow-simulated")[0] == 0
    (tmp_path / "x.json").write_text("{")
    status, out, err = command(str(tmp_path / "x.json"))
    assert (status, out) == (2, "")
    assert "not JSON" in err


def test_the_command_takes_an_id_and_prints_json(
    command: Callable[..., Outcome], gpu_record: Record, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / f"{gpu_record.id}.json").write_text(with_digest(gpu_record))
    status, out, _ = command(gpu_record.id, "--out", str(tmp_path), "--json")
    told = json.loads(out)
    assert status == 0
    assert (told["record"], told["passed"], len(told["checks"])) == (gpu_record.id, True, 11)
    assert {each["status"] for each in told["checks"]} == {"pass"}


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        (
            {"calls": 100, "rarest": 0.001},
            "100 calls cannot detect a fault in 0.001 of them with 95 % probability",
        ),
        ({"calls": 0, "rarest": 0.5}, "0 calls cannot detect a fault in 0.5 of them with 95 % probability"),
        ({"uncovered": ("M 9 to 15",)}, "accuracy passed, and no case reached: M 9 to 15"),
        ({"calls": 100, "rarest": 0.0295}, ""),
        ({"calls": 1024, "rarest": 3 / 1024, "covered": ("M 9 to 15",)}, ""),
    ],
)
def test_what_drawn_cases_claim_follows_from_their_number(
    gpu_record: Record, changed: dict[str, Any], fault: str
) -> None:
    first, *others = gpu_record.runs
    run = first.model_copy(update={"accuracy": first.accuracy.model_copy(update=changed)})
    (statuses,) = (
        each for each in check(gpu_record.model_copy(update={"runs": (run, *others)})) if each.name == "statuses"
    )
    assert [told.endswith(fault) for told in statuses.faults] == ([True] if fault else [])


def test_counts_are_those_of_the_runs(gpu_record: Record) -> None:
    honest = counted(gpu_record.runs)
    for counts, right in (
        (honest, True),
        ({}, True),
        ({**honest, "memory": {"pass": 1}}, False),
        ({"speed": {"pass": 1}}, False),
    ):
        (found,) = (each for each in check(gpu_record.model_copy(update={"counts": counts})) if each.name == "counts")
        assert (not found.faults) is right


def test_a_limit_that_is_not_listed_is_found(gpu_record: Record) -> None:
    """A PASS with a limit, in a Record whose headline does not say so."""
    first, *others = gpu_record.runs
    limit = "other paths were not run"
    limited = first.model_copy(update={"accuracy": first.accuracy.model_copy(update={"limits": (limit,)})})
    hidden = gpu_record.model_copy(update={"runs": (limited, *others)})
    (found,) = (each for each in check(hidden) if each.name == "limits")
    assert found.faults == (f"{first.id}: its limit is not listed as not judged: {limit}",)
    listed = NotJudged(kind=NotJudgedKind.ACCURACY, about=(first.kernel,), told=limit)
    (found,) = (each for each in check(hidden.model_copy(update={"not_judged": (listed,)})) if each.name == "limits")
    assert found.status == "PASS"
