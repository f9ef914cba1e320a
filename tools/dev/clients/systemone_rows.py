"""systemone-client, of any server with /v1/systemone."""

from rows import MODEL, ROW_S, SERVER, row, same
from systemone import Choice, Client, Noul, Score


@row("noul, choice, score")
def _():
    questions = {"a": Noul("Is it polite?"), "b": Choice("Which?", {"one": "1", "two": "2"}),
                 "c": Score("How much?", ["little", "much"])}  # fmt: skip
    with Client(SERVER, timeout=ROW_S) as client:
        answer = client.system_one(state={"text": "Hello"}, questions=questions, model=MODEL)
    same(0 < answer.nouls["a"].noul < 1, True)
    same(set(answer.choices["b"].probabilities), {"one", "two"})
    same(0 < answer.scores["c"].score < 1, True)
