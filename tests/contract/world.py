"""A small world in which every law can be checked: float64, three classes of views that really differ, two nets."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from maxmatch.errors import UsageError
from maxmatch.methods import METHODS, make_method, method_values
from maxmatch.methods.base import Batch, Consistency, Method, Mix
from maxmatch.nets import make_net, num_features
from maxmatch.nets.averaging import Average
from maxmatch.nets.batchnorm import set_mode
from maxmatch.nets.preprocess import Preprocessing
from maxmatch.train.runner import Runner

CLASSES, LABELLED, UNLABELLED, K = 5, 6, 8, 3
OVERS = ("worst", "mean", "best", "soft:0.5", "fraction:0.5")


class PlainNet(nn.Module):
    """Two convolutions and a linear layer: no BatchNorm, so an image's logits depend on that image alone."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.num_features = 8 * 16
        self.head = nn.Linear(self.num_features, CLASSES)

    def forward_features(self, x: Tensor) -> Tensor:
        return torch.tanh(self.two(torch.tanh(self.one(x)))).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.forward_features(x))


def make_world(kind: str = "plain", seed: int = 0, eman: bool = False) -> tuple[nn.Module, Runner]:
    """A net with confident and doubtful predictions, and a run around it; with `eman` its average is one."""
    torch.manual_seed(seed)
    net = PlainNet() if kind == "plain" else make_net("wrn-10-1", CLASSES, 1)
    net.double()
    with torch.no_grad():
        net.head.weight.mul_(8 if kind == "plain" else 3)
    set_mode(net, "train")
    return net, Runner(net, Average(net, 0.9, eman), Preprocessing(1, 8, 8), None, torch.tensor(0.5), torch.tensor(50))


def make_batch(seed: int = 0, k: int = K) -> Batch:
    """Float views of the same images: weak ones a little changed, strong ones more."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, 1, 8, 8, generator=generator, dtype=torch.float64)

    x, u = draw(LABELLED), draw(UNLABELLED)
    y = torch.randint(CLASSES, (LABELLED,), generator=generator)
    weak = u + 0.1 * draw(1, UNLABELLED)
    strong = torch.stack([u + 0.7 * draw(UNLABELLED) for _ in range(k)])
    many = LABELLED + (1 + k) * UNLABELLED
    mix = Mix(*torch.rand(2, many, generator=generator, dtype=torch.float64))
    return Batch(x, y, torch.arange(UNLABELLED), weak, strong, x + 0.5 * draw(LABELLED), mix)


def settle(method: Method, run: Runner, batch: Batch) -> Runner:
    """Give the run the method's state, after two steps on the batch: what is remembered is there."""
    torch.manual_seed(0)
    run.state = method.state(CLASSES, UNLABELLED, num_features(run._net))
    if run.state is not None:
        run.state.double()
        buffers = [b.clone() for b in run._net.buffers()]
        for _ in range(2):
            method.losses(run, batch)
        # Two steps move a running mean by little. As if training were well under way:
        if "alignment" in run.state:  # one class was predicted too often,
            run.state["alignment"].predicted.copy_(torch.linspace(0.08, 0.32, CLASSES))
        if "confidence" in run.state:  # half of the images are less confident than usual,
            run.state["confidence"].mean.fill_(0.6)
            run.state["confidence"].variance.fill_(0.05)
        if "learned" in run.state:  # every image has been learned.
            run.state["learned"].label.copy_(run._net(batch.weak[0]).argmax(-1))
        for buffer, held in zip(run._net.buffers(), buffers, strict=True):
            buffer.copy_(held)
    torch.manual_seed(1)
    return run


def takes(method: str, **options: object) -> bool:
    """Whether a method has these fields and takes these values."""
    try:
        make_method({**options, "name": method})
    except UsageError:
        return False
    return True


def consistency_methods() -> list[str]:
    return [name for name in METHODS if isinstance(make_method({"name": name}), Consistency)]


def changed(method: Method, **options: object) -> Method:
    return make_method({**method_values(method), **options})


def in_the_middle(name: str, net: nn.Module, batch: Batch, **options: object) -> Method:
    """The method with a threshold that about half of the images pass, so that its mask matters."""
    method = make_method({"name": name, **options})
    if hasattr(method, "threshold"):
        with torch.no_grad():
            view = batch.weak[0] if not isinstance(method, Consistency) or method.anchors(batch) else batch.strong[0]
            confidence = torch.softmax(net(view), -1).amax(-1)
        if isinstance(method, Consistency) and method.scores_labelled:  # a threshold relative to theirs
            return changed(method, threshold=1.0)
        method = changed(method, threshold=float(confidence.median()))
    return method


def gradients(net: nn.Module, loss: Tensor) -> Tensor:
    """All gradients of a loss as one vector; zeros where there is none."""
    found = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True, retain_graph=True)
    parts = [torch.zeros_like(p) if g is None else g for p, g in zip(net.parameters(), found, strict=True)]
    return torch.cat([part.flatten() for part in parts])
