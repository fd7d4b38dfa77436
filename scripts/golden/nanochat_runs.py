"""Runs nanochat's own GPT and optimizer on the CPU, for scripts/golden/make_nanochat_golden.py. Each call of
in_process() starts a new Python, because nanochat fixes its compute dtype when it is imported.

No code of nanochat is copied. Its schedules and learning rates, which are closures in scripts/base_train.py, are
implemented here by docs/spec/optimizer.md, "Schedules" and "Scaling rules".
"""
import concurrent.futures
import contextlib
import hashlib
import importlib
import io
import math
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile

import torch

COMMIT = "92d63d4"
SHA256 = {
    "nanochat/gpt.py": "8cdedc2e418b9d4dc45884e07f59904fcdec066bb3d76664b2adf2d415f704e3",
    "nanochat/optim.py": "7c9b714c6f76e3a9d50fc530044b2767d0cd89391237e609548f1cd730afed8f",
    "nanochat/common.py": "b843db6e769db18d3364e42cb3742a9537a3d4cf43e5f098293babc7ddeb44bf",
    "nanochat/flash_attention.py":
        "a10b0b10ad91893fcf9c9b19c96bd3468a2721cf156dcdbeeeecf05f97f22c2f",
}
REFERENCE_BATCH = 2**19  # tokens per step of nanochat's learning rates


def differing_files(checkout):
    """The files of a checkout that differ from COMMIT."""
    def digest(name):
        path = pathlib.Path(checkout) / name
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    return [name for name, expected in SHA256.items() if digest(name) != expected]


def in_process(checkout, dtype, function, world, *arguments):
    """Runs function(rank, *arguments) in `world` new processes; returns the results by rank."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ProcessPoolExecutor(
            world, spawn, _start, (str(checkout), dtype)) as pool:
        meeting = f"file://{directory}/meeting"
        jobs = [pool.submit(_in_group, meeting, rank, world, function, arguments)
                for rank in range(world)]
        return [job.result() for job in jobs]


def _start(checkout, dtype):
    # nanochat has no float64: load() patches it in.
    os.environ.update(NANOCHAT_DTYPE="float32" if dtype == "float64" else dtype,
                      TORCHDYNAMO_DISABLE="1")
    sys.path.insert(0, checkout)
    sys.dont_write_bytecode = True
    torch.set_num_threads(1)
    if dtype == "float64":
        _compute_in_float64()


def _in_group(meeting, rank, world, function, arguments):
    if world > 1:
        torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank,
                                             world_size=world)
        _complete_gloo(world, rank)
    try:
        return function(rank, *arguments)
    finally:
        if world > 1:
            torch.distributed.destroy_process_group()


def _compute_in_float64():
    """Patches nanochat to float64, with the epsilon of its norms in float32."""
    importlib.import_module("nanochat.common").COMPUTE_DTYPE = torch.float64
    gpt = importlib.import_module("nanochat.gpt")
    functional = torch.nn.functional
    gpt.norm = lambda x: functional.rms_norm(x, (x.size(-1),), eps=torch.finfo(torch.float32).eps)

    class Torch:  # for gpt.py only, which requests the rotary angles in torch.float32
        float32 = torch.float64

        def __getattr__(self, name):
            return getattr(torch, name)

    gpt.torch = Torch()
    torch.Tensor.float = torch.Tensor.double  # logits.float()


def _complete_gloo(world, rank):
    """Adds collectives of NCCL that gloo lacks, built from sums and gathers; they are complete on return."""
    dist = torch.distributed
    plain_all_reduce = dist.all_reduce

    class Finished:
        def get_future(self):
            return self

        def wait(self):
            pass

    def all_reduce(tensor, op, async_op):
        assert op == dist.ReduceOp.AVG and async_op
        plain_all_reduce(tensor)
        tensor.div_(world)
        return Finished()

    def reduce_scatter_tensor(output, tensor, op, async_op):
        total = tensor.clone()
        all_reduce(total, op, async_op)
        output.copy_(total.chunk(world)[rank].view_as(output))
        return Finished()

    def all_gather_into_tensor(output, tensor, async_op):
        assert async_op
        parts = [torch.empty_like(tensor) for _ in range(world)]
        dist.all_gather(parts, tensor.clone())
        output.copy_(torch.cat(parts).view_as(output))
        return Finished()

    dist.all_reduce = all_reduce
    dist.reduce_scatter_tensor = reduce_scatter_tensor
    dist.all_gather_into_tensor = all_gather_into_tensor


def load(config):
    """nanochat's model with its initial weights, created as in its training script."""
    gpt = importlib.import_module("nanochat.gpt")
    torch.manual_seed(42)
    with contextlib.redirect_stdout(io.StringIO()):
        model = gpt.GPT(gpt.GPTConfig(**config))
    model.init_weights()
    return model


def forward_backward(_rank, config, weights_of, inputs, targets):
    """Returns the weights (float32, by weights_of(name, shape)), and loss, logits, gradients and sizes of terms in
    float64."""
    model = load(config)
    stored = {name: weights_of(name, p.shape) for name, p in model.named_parameters()}
    model.load_state_dict(stored)
    model.double()
    loss = model(inputs, targets)
    loss.backward()
    with torch.no_grad():
        logits = model(inputs)
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return stored, loss.detach(), logits, gradients, _sizes_of_terms(model, inputs, targets)


def _sizes_of_terms(model, inputs, targets):
    """For each lambda, the sum of the magnitudes of the terms of its gradient, one term per element of the stream: the
    gradients if every element had its own lambda."""
    b, t, n = *inputs.shape, model.config.n_embd
    apart = {"smear_lambda": (b, t - 1, n), "backout_lambda": (b, t, n),
             "resid_lambdas": (b, t, n), "x0_lambdas": (b, t, n)}
    for name, shape in apart.items():
        value = getattr(model, name).detach()
        per_layer = name.endswith("s")
        apart[name] = (value[:, None, None, None].expand(-1, *shape) if per_layer
                       else value.expand(shape)).clone().requires_grad_()
    loss = torch.func.functional_call(model, apart, (inputs, targets))
    terms = torch.autograd.grad(loss, list(apart.values()))
    return {name: term.abs().sum((-3, -2, -1)).reshape(getattr(model, name).shape)
            for name, term in zip(apart, terms)}


def learning_rate_multiplier(it, hyper):
    n = hyper["iterations"]
    warmdown = round(hyper["warmdown_ratio"] * n)
    if it < hyper["warmup_steps"]:
        return (it + 1) / hyper["warmup_steps"]
    if it <= n - warmdown:
        return 1.0
    p = (n - it) / warmdown
    return p + (1 - p) * hyper["final_lr_frac"]


def muon_momentum(it, hyper):
    n = hyper["iterations"]
    warmdown = round(hyper["warmdown_ratio"] * n)
    if it < 400:
        return 0.85 + (0.97 - 0.85) * it / 400
    if it >= n - warmdown:
        return 0.97 + (0.90 - 0.97) * (it - (n - warmdown)) / warmdown
    return 0.97


def muon_weight_decay(it, hyper):
    return (hyper["weight_decay"] * hyper["weight_decay_scale"] * 0.5
            * (1 + math.cos(math.pi * it / hyper["iterations"])))


def perturb(model, seed):
    """Moves every weight to the next number of its dtype, up or down."""
    rng = random.Random(seed)
    with torch.no_grad():
        for p in model.parameters():
            to = torch.tensor([math.inf if rng.random() < 0.5 else -math.inf
                               for _ in range(p.numel())], dtype=p.dtype)
            p.copy_(torch.nextafter(p, to.reshape(p.shape)))


def open_projections(model):
    """Sets projections as large as the other matrices, and some smear.

    nanochat starts with both at zero. The gradients of resid_lambdas, x0_lambdas and backout_lambda are then zero
    except for rounding, because they only change the length of the stream, which the last norm removes; AdamW turns
    that rounding into full steps.
    """
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("c_proj.weight"):
                p.uniform_(-1, 1).mul_(math.sqrt(3 / p.shape[1]))
        model.smear_lambda.fill_(0.3)


def train(rank, world, config, batches, hyper, runs):
    """Returns for each run this rank's mean loss of every step, and the weights after some steps.

    batches: (batches, rows, T + 1) tokens. A run is a dict: `order`, a batch index per step; `accumulation`; `open`,
    to call open_projections() first; `keep`, the steps after which to return the weights; `perturbation`, a seed; and
    overrides of `hyper`.
    """
    return [_train(rank, world, config, batches, {**hyper, **run}) for run in runs]


def _train(rank, world, config, batches, run):
    model = load(config)
    if run["open"]:
        open_projections(model)
    if run.get("perturbation"):
        perturb(model, run["perturbation"])
    scale = math.sqrt(run["total_batch_tokens"] / REFERENCE_BATCH)
    with contextlib.redirect_stdout(io.StringIO()):
        optimizer = model.setup_optimizer(
            unembedding_lr=run["unembedding_lr"] * scale,
            embedding_lr=run["embedding_lr"] * scale, scalar_lr=run["scalar_lr"] * scale,
            matrix_lr=run["matrix_lr"] * scale, weight_decay=muon_weight_decay(0, run))
    rows = batches.shape[1] // (world * run["accumulation"])
    losses, kept = [], {}
    for it, index in enumerate([*run["order"], None]):
        if it in run.get("keep", ()):
            kept[it] = {name: p.detach().clone() for name, p in model.named_parameters()}
        if index is None:
            return losses, kept
        mean = 0.0
        for micro in range(run["accumulation"]):
            first = (micro * world + rank) * rows
            tokens = batches[index, first : first + rows]
            loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
            mean += loss.item() / run["accumulation"]
            (loss / run["accumulation"]).backward()
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] * learning_rate_multiplier(it, run)
            if group["kind"] == "muon":
                group["momentum"] = muon_momentum(it, run)
                group["weight_decay"] = muon_weight_decay(it, run)
        optimizer.step()
        model.zero_grad(set_to_none=True)
        losses.append(mean)
