"""TypeSafe's own client of System One."""

from rows import MODEL, ROW_S, SERVER, row, same
from typesafe_sdk import Choice, Noul, Score, TypeSafeClient


def ask(**questions):
    with TypeSafeClient(api_key="none", base_url=SERVER, timeout=ROW_S) as client:
        return client.system_one(model=MODEL, state={"text": "Hello"}, questions=questions)


@row("noul, choice, score")
def _():
    answer = ask(
        a=Noul(instructions="Is it polite?"),
        b=Choice(instructions="Which?", criteria={"one": None, "two": "more"}),
        c=Score(instructions="How much?", criteria=["little", "much"]),
    )
    same(0 < answer.nouls["a"].noul < 1, True)
    same(set(answer.choices["b"].probabilities), {"one", "two"})
    same(0 < answer.scores["c"].score < 1, True)
