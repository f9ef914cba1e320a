"""The faults of DECIDE's rules."""

from faults import of_entries, without_field


@of_entries("an-answer-is-the-questions-alone")
def answers_drift(entry, _):
    if len(entry.get("answers", {})) == 1:
        for answer in entry["answers"].values():
            answer.setdefault("noul", answer.get("confidence"))
            answer["noul"] *= 1 - 1e-12


without_field("wrong-decisions-are-refused", "scoring", "DECIDE")
