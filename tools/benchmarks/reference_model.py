"""What lmtp-serve is compared with: the same model in transformers, in float32 with the very
numbers that its files hold, and an adapter on it by peft."""

import json
import pathlib
import tempfile

import dequantize

HF, GGUF, ADAPTER = "folder", "GGUF file", "adapter"


class NoReference(Exception):
    """Why there is none."""


def kind_of(path):
    """HF, GGUF or ADAPTER."""
    path = pathlib.Path(path)
    if path.is_dir() and (path / "adapter_config.json").exists():
        return ADAPTER
    return GGUF if gguf_file(path) else HF


def gguf_file(path):
    """The file itself, or the only one of a folder without a config.json; else None."""
    path = pathlib.Path(path)
    if path.is_file():
        return path if path.suffix == ".gguf" else None
    files = sorted(path.glob("*.gguf")) if path.is_dir() else []
    return files[0] if len(files) == 1 and not (path / "config.json").exists() else None


def base_of(adapter):
    """As the adapter names it: a path from here, from the folder, or a name of the hub."""
    config = json.loads((pathlib.Path(adapter) / "adapter_config.json").read_text())
    name = config.get("base_model_name_or_path") or ""
    beside = pathlib.Path(adapter) / name
    return str(beside) if name and beside.exists() and not pathlib.Path(name).exists() else name


def settings_of(path):
    """quantization_config of a folder, or None."""
    is_folder = (pathlib.Path(path) / "config.json").exists()
    return dequantize.settings_of(path) if is_folder else None


class Reference:
    """log_probs(ids) -> [tokens, vocab] by `model`; `how` says in words what it is."""

    def __init__(self, path, adapter=None):
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        torch.set_grad_enabled(False)
        self.how = f"transformers {transformers.__version__} in float32"
        try:
            self.model = self.load(pathlib.Path(path)).eval()
        except Exception as e:  # any: what it cannot read is a result, too
            what = " ".join(str(e).split())[:200]
            raise NoReference(f"transformers {transformers.__version__}: {what}") from e
        if adapter is not None:
            import peft

            self.model = peft.PeftModel.from_pretrained(self.model, str(adapter)).float().eval()
            self.how += f" and peft {peft.__version__}"
        self.torch = torch

    def load(self, path):
        if file := gguf_file(path):
            import reference_gguf

            self.how += ", weights by the gguf package"
            return reference_gguf.load(file)
        if settings_of(path) is None:
            return self.load_plain(path)
        self.how += ", weights by dequantize.py"
        return self.load_quantised(path)

    @staticmethod
    def load_plain(path, **options):
        import torch
        import transformers

        return transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager", **options
        )

    def load_quantised(self, path):
        """By a folder of the same without quantization_config, in a temporary place."""
        from safetensors.torch import save_file

        config = json.loads((path / "config.json").read_text())
        for key in ("quantization_config", "compression_config"):
            config.pop(key, None)
        with tempfile.TemporaryDirectory(prefix="serve-check-") as name:
            plain = pathlib.Path(name)
            (plain / "config.json").write_text(json.dumps(config))
            tensors = dequantize.state_dict(path)
            save_file(tensors, plain / "model.safetensors", metadata={"format": "pt"})
            return self.load_plain(plain)

    def log_probs(self, ids):
        return self.torch.log_softmax(self.model(self.torch.tensor([ids])).logits[0], -1)
