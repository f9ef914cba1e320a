"""Tokenizers as save_pretrained writes them: lmtp-client gives the ids and texts that the release
of transformers gives which has written the folder. Runs with each release that is installed.
"""

import pathlib
import random
import sys

import pytest
import transformers
from test_tokenizers import SMALL, SOURCE, check_decode, check_encode

sys.path.insert(0, str(SOURCE / "tests" / "goldens"))
from tokenizer_texts import HAND_WRITTEN, Reference, edges, random_text  # noqa: E402

NUM_TEXTS = 1000
WITH_CLASS = [folder for folder in SMALL if (folder / "tokenizer_config.json").exists()]


@pytest.mark.parametrize("source", WITH_CLASS, ids=lambda folder: folder.name)
def test_ids_of_the_release_that_wrote_the_folder(source, tmp_path):
    transformers.AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path)
    reference = Reference(pathlib.Path(tmp_path))
    rng = random.Random(17)
    texts = [*HAND_WRITTEN, *(random_text(rng) for _ in range(NUM_TEXTS))]
    texts += edges(rng.sample(reference.added, min(len(reference.added), 6)))
    check_encode(tmp_path, reference, texts)
    check_decode(tmp_path, reference, reference.encode_all(texts[:300]))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
