"""What torch and transformers reach on the device, as lines of JSON; tools/gpu-check runs it.

    gpu_peers.py DEVICE peak                                            cuBLAS, square bf16
    gpu_peers.py DEVICE copy                                            memory, read and written
    gpu_peers.py DEVICE linear ROWS,... NxK,...                         cuBLAS, bf16
    gpu_peers.py DEVICE attention HEADS KV_HEADS HEAD_DIM BATCHES CONTEXTS    SDPA, decode
    gpu_peers.py DEVICE generate SHAPE BATCHES PROMPT COUNT             transformers, batched
    gpu_peers.py DEVICE versions
    gpu_peers.py DEVICE                        one after another: a line of JSON, as ["peak"], each

DEVICE is cuda:N or cpu, on which sizes are small.
"""

import gc
import json
import statistics
import sys
import time

import torch
from gpu_shapes import DEMO, GPT2_MEDIUM
from torch.nn.functional import scaled_dot_product_attention

ROUNDS = 7
ROUND_S = 0.05
TURN_BYTES = 512 << 20  # as gpu-bench: beyond any cache
TURNS_MAX = 1024
COPY_BYTES = 2 << 30
GPT2_SHAPES = {"gpt2-medium": GPT2_MEDIUM, "demo": DEMO}


def say(**figures):
    print(json.dumps(figures), flush=True)


def numbers(text):
    return [int(part) for part in text.split(",")]


class Peer:
    def __init__(self, device):
        self.device = torch.device(device)
        self.on_gpu = self.device.type == "cuda"
        if self.on_gpu:
            torch.cuda.set_device(self.device.index or 0)  # graphs are captured on the current one
        # On a CPU the program is tried, no more.
        self.turn_bytes, self.rounds = (TURN_BYTES, ROUNDS) if self.on_gpu else (0, 1)

    def wait(self):
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def seconds_of(self, work):
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - start

    def captured(self, work):
        """As gpu-bench does it: launching does not count."""
        work()
        self.wait()
        if not self.on_gpu:
            return work
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay

    def seconds_of_op(self, ops):
        """The median time of one of `ops`."""

        def all_of_them():
            for op in ops:
                op()

        run = self.captured(all_of_them)
        run()  # the first launch also uploads the graph
        times = max(1, int(ROUND_S / self.seconds_of(run)))
        one_round = lambda: [run() for _ in range(times)]
        rounds = [self.seconds_of(one_round) for _ in range(self.rounds)]
        return statistics.median(rounds) / times / len(ops)

    def random(self, *shape):
        return torch.randn(*shape, device=self.device, dtype=torch.bfloat16)

    # ---- what is measured ----

    def peak(self):
        """The fastest of a few sizes: what a matrix product can reach here."""
        sizes = (4096, 8192, 16384) if self.on_gpu else (512,)
        for size in sizes:
            a, b = self.random(size, size), self.random(size, size)
            out = torch.empty_like(a)
            seconds = self.seconds_of_op([lambda: torch.mm(a, b, out=out)])
            say(what="peak", size=size, flops=2 * size**3 / seconds)

    def copy(self):
        num_bytes = COPY_BYTES if self.on_gpu else 16 << 20
        source = self.random(num_bytes // 2)
        target = torch.empty_like(source)
        seconds = self.seconds_of_op([lambda: target.copy_(source)])
        say(what="copy", bytes_per_s=2 * num_bytes / seconds)

    def linear(self, rows, shapes):
        for shape in shapes.split(","):
            for count in numbers(rows):
                self.linear_of(count, *map(int, shape.split("x")))

    def linear_of(self, rows, n, k):
        turns = max(1, min(TURNS_MAX, self.turn_bytes // (2 * n * k)))
        weights = [self.random(n, k) for _ in range(turns)]
        x, out = self.random(rows, k), self.random(rows, n)
        ops = [lambda w=w: torch.mm(x, w.t(), out=out) for w in weights]
        seconds = self.seconds_of_op(ops)
        say(what="linear", rows=rows, n=n, k=k, us=seconds * 1e6, flops=2 * rows * n * k / seconds,
            bytes_per_s=2 * n * k / seconds)  # fmt: skip

    def attention(self, heads, kv_heads, head_dim, batches, contexts):
        for batch in numbers(batches):
            for context in numbers(contexts):
                self.decode_attention(int(heads), int(kv_heads), int(head_dim), batch, context)

    def decode_attention(self, heads, kv_heads, head_dim, batch, context):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        num_bytes = 2 * 2 * batch * context * kv_heads * head_dim
        turns = max(1, min(TURNS_MAX, self.turn_bytes // num_bytes))
        query = self.random(batch, heads, 1, head_dim)
        caches = [
            tuple(self.random(batch, kv_heads, context, head_dim) for _ in range(2))
            for _ in range(turns)
        ]
        grouped = heads != kv_heads
        ops = [
            lambda k=k, v=v: scaled_dot_product_attention(query, k, v, enable_gqa=grouped)
            for k, v in caches
        ]
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            seconds = self.seconds_of_op(ops)
        say(what="attention", batch=batch, context=context, us=seconds * 1e6,
            bytes_per_s=num_bytes / seconds)  # fmt: skip

    def generate(self, shape, batches, prompt, count):
        """Greedy, one batch from its prompts to its last tokens; the second run counts."""
        sizes, prompt, count = GPT2_SHAPES[shape], int(prompt), int(count)
        name, generate = self.generator(sizes)
        for batch in numbers(batches):
            ids = torch.randint(sizes.vocab, (batch, prompt), device=self.device)

            def run():
                made = generate(ids, count)
                assert made.shape[1] == prompt + count, made.shape

            run()
            seconds = min(self.seconds_of(run) for _ in range(2))
            say(what="generate", by=name, batch=batch, tokens_per_s=batch * count / seconds)

    def generator(self, sizes):
        """(name, generate(ids, count))"""
        try:
            import transformers
        except ImportError:
            from gpu_torch_loop import TorchLoop

            loop = TorchLoop(self.device, sizes.hidden, sizes.layers, sizes.heads, sizes.vocab)
            return loop.name, loop.generate
        transformers.logging.set_verbosity_error()
        with torch.device(self.device):
            config = transformers.GPT2Config(
                n_embd=sizes.hidden, n_layer=sizes.layers, n_head=sizes.heads,
                vocab_size=sizes.vocab,
            )  # fmt: skip
            model = transformers.GPT2LMHeadModel(config)
        model = model.to(torch.bfloat16).eval()

        def generate(ids, count):
            return model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count,
                min_new_tokens=count, pad_token_id=0,
            )  # fmt: skip

        return f"transformers {transformers.__version__}", generate

    def versions(self):
        say(what="versions", torch=torch.__version__, cuda=torch.version.cuda)

    def forget(self):
        """Leaves the device's memory to others."""
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()


def main():
    device, *once = sys.argv[1:]
    peer = Peer(device)
    for what, *arguments in [once] if once else map(json.loads, sys.stdin):
        with torch.inference_mode():
            getattr(peer, what)(*arguments)
        peer.forget()
        if not once:
            print()  # what a library has printed may lack its end of line
            say(what="end")


if __name__ == "__main__":
    main()
