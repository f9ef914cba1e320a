"""The report of tools/gpu-check: rows, written to report.md and report.json as each one comes."""

import dataclasses
import json
import pathlib

import report

# What a row says. Figures of a dry run are compared with nothing: they are MEASURED at most.
PASSED, FAILED = "passed", "FAILED"
REACHED, MISSED, MEASURED = "reached", "MISSED", "measured"
NOT_RUN = "not run"
BAD = (FAILED, MISSED)

PARTS = {
    "correct": "Correctness",
    "bench": "Figures",
    "soak": "Endurance",
}
TARGET_DEVICE = "H200"  # whose memory gives 4.8 TB/s
HEAD = ("what", "result", "", "to reach", "notes")


@dataclasses.dataclass
class Row:
    part: str
    what: str
    outcome: str
    result: str = ""
    target: str = ""
    notes: str = ""
    figures: dict = dataclasses.field(default_factory=dict)  # what the result is made of, in JSON

    def cells(self):
        texts = (self.what, self.result, self.outcome, self.target, self.notes)
        return [text.replace("|", "/") for text in texts]


class Report:
    """Owner: one run of one part. Rows of other parts that the folder already holds are kept."""

    def __init__(self, folder, part, facts):
        self.folder, self.part = pathlib.Path(folder), part
        self.folder.mkdir(parents=True, exist_ok=True)
        before = self.read()
        self.facts = {**before.get("facts", {}), part: facts}
        self.rows = [Row(**row) for row in before.get("rows", []) if row["part"] != part]
        self.write()

    def read(self):
        try:
            return json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    @property
    def is_dry(self):
        return self.facts[self.part]["device"] == "cpu"

    def add(self, what, outcome, result="", target="", notes="", **figures):
        if self.is_dry and outcome in (REACHED, MISSED):
            outcome = MEASURED
        notes = " ".join(notes.split())
        row = Row(self.part, what, outcome, result, target, notes, figures)
        self.rows.append(row)
        self.write()
        print(f"{what:<64} {result:<28} {outcome}  {notes}".rstrip(), flush=True)
        return row

    def compare(self, what, value, unit, least=None, most=None, then=None, digits=0, notes="",
                **figures):  # fmt: skip
        """A figure that is to be at least or at most something, and `then` better still; None: it
        could not be taken."""
        target = f">= {least:g} {unit}" if least is not None else ""
        target = f"<= {most:g} {unit}" if most is not None else target
        target += f", then {then:g}" if then is not None else ""
        if value is None:
            return self.add(what, NOT_RUN, target=target, notes=notes, **figures)
        is_met = (least is None or value >= least) and (most is None or value <= most)
        outcome = MEASURED if least is None and most is None else REACHED if is_met else MISSED
        result = f"{value:,.{digits}f} {unit}"
        return self.add(what, outcome, result, target, notes, value=value, unit=unit, **figures)

    def has_failures(self):
        return any(row.outcome in BAD for row in self.rows if row.part == self.part)

    def write(self):
        rows = [dataclasses.asdict(row) for row in self.rows]
        text = json.dumps({"facts": self.facts, "rows": rows}, indent=1)
        self.replace("report.json", text + "\n")
        self.replace("report.md", self.markdown())

    def replace(self, name, text):
        new = self.folder / f"{name}.new"
        new.write_text(text, encoding="utf-8")
        new.rename(self.folder / name)

    def markdown(self):
        intro = "Written by `tools/gpu-check`, a row at a time (docs/gpu_check.md)."
        sections = [f"# gpu-check\n\n{intro}"]
        for part, title in PARTS.items():
            if part in self.facts:
                sections.append(self.section(part, title))
        return "\n\n".join(sections) + "\n"

    def section(self, part, title):
        facts = self.facts[part]
        lines = [f"## {title}", ""]
        if facts["device"] == "cpu":
            lines += ["**A dry run on the CPU backend: nothing here ran on a GPU.**", ""]
        elif part == "bench" and TARGET_DEVICE not in facts["device"]:
            lines += [f"**The figures to reach are meant for an NVIDIA {TARGET_DEVICE}: this is "
                      "another device.**", ""]  # fmt: skip
        lines += [f"- {name.replace('_', ' ')}: {text}" for name, text in facts.items()]
        rows = [row.cells() for row in self.rows if row.part == part]
        return "\n".join(lines) + "\n\n" + report.table(HEAD, rows, "lllll")
