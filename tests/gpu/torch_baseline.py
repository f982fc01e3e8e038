#!/usr/bin/env python3
"""PyTorch as the baseline of the GPU benchmark: the models of seeded.py, from host memory to host memory, with a new input in each call.

Three ways to run them, with the same weights and inputs:
  eager                 the module itself, with scaled_dot_product_attention
  torch.compile         mode="max-autotune", which makes its own CUDA graphs
  torch.compile+graph   mode="max-autotune-no-cudagraphs", with input copy, model and output copy captured explicitly as one CUDA graph:
                        the fastest way that we know. Ratios use the faster of the two compiled ways
A call begins with an input in pinned host memory that no earlier call had, and ends when the answer is in host memory. The encoder's
three inputs are copied as one, in PyTorch's favour. Before a way is timed, its answers to new inputs with masks are compared with
double precision on the CPU. A way with a wrong answer, or that does not compile here, is not timed.

usage: torch_baseline.py [--case MODEL:SHAPE:PRECISION …] [--by WAY …] [--seconds S] [--json FILE]
The default cases are mlp:1:fp32 and minilm:32x128:fp16; precisions are fp32, tf32, fp16. Prints a line for each row. The JSON is a
list of rows {model, by, precision, batch, length, samples_us, p50_us, p99_us, first_call_s, torch, cuda, device}. Exit code 1 if a way
failed, 2 without a CUDA device.
"""

import argparse
import gc
import math
import pathlib
import sys
import time

WAYS = ("eager", "torch.compile", "torch.compile+graph")


def command_line():
    """Parses the options, before the imports below, so that --help needs only the standard library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", help="MODEL:SHAPE:PRECISION")
    parser.add_argument("--by", action="append", choices=WAYS)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


OPTIONS = command_line() if __name__ == "__main__" else None

import numpy as np  # noqa: E402

import jsonfile  # noqa: E402
import seeded  # noqa: E402

CASES = ("mlp:1:fp32", "minilm:32x128:fp16")
FRESH, WARM_UP, MOST_CALLS = 64, 50, 20000
# |y - r| <= limit + limit · |r|: checks that the models are the same, not how exact PyTorch is
TOLERANCE = {"fp32": 1e-4, "tf32": 5e-3, "fp16": 1e-2}

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    raise SystemExit("torch_baseline.py: PyTorch is not installed; the baseline needs it and a CUDA device") from None


# === the models


class Mlp(nn.Module):
    """Linear layers with ReLU in between and a sigmoid at the end."""

    def __init__(self):
        super().__init__()
        given = seeded.mlp_weights()
        self.layers = nn.ModuleList([linear(given[f"w{at}"].T, given[f"b{at}"]) for at in range(len(given) // 2)])

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return torch.sigmoid(self.layers[-1](x))


class Layer(nn.Module):
    """One layer of BERT, with a norm after each residual sum."""

    def __init__(self, given, at):
        super().__init__()
        take = lambda name: linear(given[f"{at}{name}.weight"], given[f"{at}{name}.bias"])
        self.query, self.key, self.value = (take(f"attention.self.{part}") for part in ("query", "key", "value"))
        self.projection, self.wide, self.narrow = take("attention.output.dense"), take("intermediate.dense"), take("output.dense")
        self.first, self.second = norm(given, f"{at}attention.output.LayerNorm"), norm(given, f"{at}output.LayerNorm")

    def forward(self, x, mask):
        batch, length, hidden = x.shape
        heads = lambda part: part(x).view(batch, length, hidden // seeded.HEAD, seeded.HEAD).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(heads(self.query), heads(self.key), heads(self.value), attn_mask=mask)
        x = self.first(self.projection(mixed.transpose(1, 2).reshape(batch, length, hidden)) + x)
        return self.second(self.narrow(F.gelu(self.wide(x))) + x)


class MiniLm(nn.Module):
    """The encoder; its output is the mean over the tokens of each sentence, normalised to length 1."""

    def __init__(self):
        super().__init__()
        given = seeded.minilm_weights()
        for name in ("word", "position", "token_type"):
            setattr(self, name, nn.Embedding.from_pretrained(tensor(given[f"embeddings.{name}_embeddings.weight"])))
        self.norm = norm(given, "embeddings.LayerNorm")
        self.layers = nn.ModuleList([Layer(given, f"encoder.layer.{at}.") for at in range(seeded.LAYERS)])

    def forward(self, packed):
        ids, mask, types = packed[0], packed[1], packed[2]
        x = self.norm(self.word(ids) + self.token_type(types) + self.position.weight[: ids.shape[1]])
        attended = mask.bool()[:, None, None, :]
        for layer in self.layers:
            x = layer(x, attended)
        share = mask[:, :, None].float()
        mean = (x.float() * share).sum(1) / share.sum(1).clamp(min=1e-9)
        return F.normalize(mean, dim=-1)


def tensor(array):
    return torch.from_numpy(np.array(array))


def linear(weight, bias):
    """An nn.Linear with these weights; `weight` is [n][k]."""
    made = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        made.weight.copy_(tensor(weight))
        made.bias.copy_(tensor(bias))
    return made


def norm(given, name):
    made = nn.LayerNorm(given[f"{name}.weight"].shape[0], eps=1e-12)
    with torch.no_grad():
        made.weight.copy_(tensor(given[f"{name}.weight"]))
        made.bias.copy_(tensor(given[f"{name}.bias"]))
    return made


def module(name):
    return {"mlp": Mlp, "minilm": MiniLm}[name]().eval().requires_grad_(False)


# === one case


class Case:
    """A model of one shape and precision on the device, with inputs and expected outputs."""

    def __init__(self, text):
        self.model, shape, self.precision = text.split(":")
        batch, _, length = shape.partition("x")
        self.batch, self.length = int(batch), int(length) if length else None
        self.text, self.rng = text, np.random.default_rng()
        torch.set_float32_matmul_precision("high" if self.precision == "tf32" else "highest")
        self.plain = module(self.model).double()
        half = self.precision == "fp16"
        self.on_device = module(self.model).cuda().half() if half else module(self.model).cuda()
        self.input_type = torch.float16 if half and self.model == "mlp" else None

    def fresh(self, ragged=False):
        """A new input in pinned memory, of the type that the module takes."""
        made = tensor(seeded.feed(self.model, self.batch, self.length, self.rng, ragged))
        return made.to(self.input_type or made.dtype).pin_memory()

    def wanted(self, given):
        """The output for an input, in double precision on the CPU."""
        return self.plain(given.double() if self.model == "mlp" else given).numpy()

    def ready(self, way):
        """`call(input)` for a way; it returns the answer as an array in host memory."""
        static = self.fresh().cuda()
        answer = self.on_device(static)
        out = torch.empty(answer.shape, dtype=answer.dtype, pin_memory=True)
        seen, stream = out.numpy(), torch.cuda.current_stream()
        if way == "torch.compile+graph":
            return self.captured(static, out)
        run = torch.compile(self.on_device, mode="max-autotune", dynamic=False) if way == "torch.compile" else self.on_device

        def call(given):
            static.copy_(given, non_blocking=True)
            out.copy_(run(static), non_blocking=True)
            stream.synchronize()
            return seen

        return call

    def captured(self, static, out):
        """`call(input)` by one graph of copy, model and copy. It first copies the input to the memory that the graph reads."""
        run = torch.compile(self.on_device, mode="max-autotune-no-cudagraphs", dynamic=False)
        staged = self.fresh()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                out.copy_(run(static), non_blocking=True)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            static.copy_(staged, non_blocking=True)
            out.copy_(run(static), non_blocking=True)
        seen, place, stream = out.numpy(), staged.numpy(), torch.cuda.current_stream()

        def call(given):
            np.copyto(place, given.numpy())
            graph.replay()
            stream.synchronize()
            return seen

        call.keeps = (static, staged, out, run)  # keeps them alive: the graph has only their addresses
        return call

    def check(self, call, way):
        """Raises unless the answers to new inputs, some with masks, agree with the CPU's."""
        for ragged in (False, True, True):
            given = self.fresh(ragged)
            y, r = call(given).astype(np.float64), self.wanted(given).astype(np.float64)
            off = (np.abs(y - r) / (1 + np.abs(r))).max()
            if not off <= TOLERANCE[self.precision]:
                raise ArithmeticError(f"the answer differs from the CPU's by {off:.2e}")

    def row(self, way, seconds):
        begun = time.perf_counter()
        call = self.ready(way)
        call(self.fresh())
        first = time.perf_counter() - begun
        self.check(call, way)
        samples = timed(call, [self.fresh() for _ in range(FRESH)], seconds)
        facts = {"model": self.model, "by": way, "precision": self.precision, "batch": self.batch, "length": self.length}
        facts |= {"p50_us": quantile(samples, 0.5), "p99_us": quantile(samples, 0.99), "first_call_s": round(first, 2)}
        facts |= {"torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name()}
        return facts | {"samples_us": samples}


def timed(call, inputs, seconds):
    """Microseconds of each call, after a warm-up. Inputs are changed in place before each call, so that every call has a new one."""
    for at in range(WARM_UP):
        call(inputs[at % len(inputs)])
    gc.collect()
    gc.disable()
    try:
        samples, end = [], time.perf_counter() + seconds
        while len(samples) < MOST_CALLS and time.perf_counter() < end:
            given = inputs[len(samples) % len(inputs)]
            given.view(-1)[:8].copy_(given.view(-1)[:8].flip(0))
            start = time.perf_counter_ns()
            call(given)
            samples.append(round((time.perf_counter_ns() - start) / 1e3, 2))
        return samples
    finally:
        gc.enable()


def quantile(samples, share):
    """The nearest rank."""
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def main(options):
    if not torch.cuda.is_available():
        print("torch_baseline.py: PyTorch finds no CUDA device; nothing is timed or written", file=sys.stderr)
        return 2
    rows, failed = [], False
    with torch.no_grad():
        for text in options.case or CASES:
            case = Case(text)
            for way in options.by or WAYS:
                try:
                    rows.append(row := case.row(way, options.seconds))
                except Exception as error:  # any error of PyTorch's compiler on this machine; the other ways are still timed
                    failed = True
                    print(f"{text} by {way}: not timed: {type(error).__name__}: {str(error)[:600]}", flush=True)
                    continue
                finally:
                    torch.compiler.reset()
                shown = f"{text} by {way}: p50 {row['p50_us']:.1f} us, p99 {row['p99_us']:.1f} us of {len(row['samples_us'])} calls"
                print(f"{shown}; first call {row['first_call_s']:.1f} s", flush=True)
                if options.json:  # after each row, so that a fault in the next one loses nothing
                    jsonfile.keep(options.json, rows)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(OPTIONS))
