"""The optimisers against singular values by NumPy, torch's own SGD, and arithmetic by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from maxmatch.errors import UsageError
from maxmatch.nets import make_net, num_features
from maxmatch.nets.head import empty_head
from maxmatch.train.fit import fit
from maxmatch.train.optimizers import Muon, Optimizer, Stack, orthogonal, orthogonal_weights
from maxmatch.train.recipe import TrainSettings


@pytest.mark.parametrize("shape", [(3, 8, 20), (1, 1, 5)])
def test_orthogonal_keeps_the_singular_vectors_and_evens_out_the_values(shape):
    matrices = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for before, after in zip(matrices.numpy(), orthogonal(matrices).numpy(), strict=True):
        u, values, v = np.linalg.svd(before, full_matrices=False)
        inside = u.T @ after @ v.T
        assert np.abs(inside - np.diag(np.diag(inside))).max() < 1e-9
        assert np.diag(inside).min() > 0.6
        assert np.diag(inside).max() < 1.25
        assert values.max() / values.min() > 1.5 or len(values) == 1


def test_five_rounds_of_a_polynomial_are_made_of_each_singular_value():
    values = np.array([0.01, 0.05, 0.3, 1.0])
    expected = values / np.linalg.norm(values)
    for _ in range(5):
        expected = 3.4445 * expected - 4.7750 * expected**3 + 2.0315 * expected**5
    found = orthogonal(torch.diag(torch.from_numpy(values))[None])[0]
    np.testing.assert_allclose(found.numpy(), np.diag(expected), rtol=1e-9)


def test_rows_and_columns_of_zeros_change_nothing():
    matrix = torch.randn(1, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    filled = torch.nn.functional.pad(matrix, (0, 5, 0, 3))
    torch.testing.assert_close(orthogonal(filled), torch.nn.functional.pad(orthogonal(matrix), (0, 5, 0, 3)))


def test_a_stack_holds_weights_of_several_shapes_and_gives_them_back():
    shapes = [(4, 8, 3, 3), (4, 2, 3, 3), (16, 4, 1, 1), (3, 8, 3, 3), (4, 8, 3, 3)]
    weights = [torch.randn(*shape).to(memory_format=torch.channels_last) for shape in shapes]
    for weight in weights[1:]:  # the first has no gradient: that is one of zeros
        weight.grad = weight + 1
    stack = Stack(weights)
    for _ in range(2):  # nothing is left of what was held before
        stack.load()
    for matrices, shift in ((stack.matrices, 0), (stack.gradients, 1)):
        assert matrices.shape == (5, 4, 72)
        assert torch.equal(matrices[1, :, :18].unflatten(1, (3, 3, 2)), weights[1].permute(0, 2, 3, 1) + shift)
        assert torch.equal(matrices[2, :, :16], weights[2][:, :, 0, 0].T + shift)
        assert torch.equal(matrices[3, :3].unflatten(1, (3, 3, 8)), weights[3].permute(0, 2, 3, 1) + shift)
        assert not matrices[1, :, 18:].any()
        assert not matrices[3, 3:].any()
    assert not stack.gradients[0].any()
    before = [weight.clone() for weight in weights]
    stack.matrices.mul_(2)
    stack.store()
    assert all(torch.equal(weight, 2 * old) for weight, old in zip(weights, before, strict=True))


def test_small_weights_share_a_stack():
    """Rows of 16, 32 and 64 are one product; those of 128 another."""
    net = make_net("wrn-28-2", 10, 3)
    optimizer = Optimizer(net, None, torch.tensor(0.1), TrainSettings(optimizer="muon"))
    assert [tuple(m.shape) for m in optimizer.momenta[-2:]] == [(19, 64, 576), (8, 128, 1152)]
    assert sum(m.ndim == 3 for m in optimizer.momenta) == 2


def test_a_matrix_of_zeros_stays_zero():
    assert not orthogonal(torch.zeros(1, 3, 4)).any()


def trained(optimizer: str, steps: int = 3, skip_at: int = -1, lr: float = 0.1) -> tuple[nn.Module, Optimizer, list]:
    torch.manual_seed(0)
    net = make_net("wrn-10-1", classes=3, channels=1).to(memory_format=torch.channels_last)
    rate = torch.tensor(lr)
    optimizer = Optimizer(net, None, rate, TrainSettings(optimizer=optimizer, weight_decay=0.01))
    history = []
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(step))
        net(x).square().mean().backward()
        optimizer.step(torch.tensor(float(step == skip_at)))
        history.append([t.detach().clone() for t in [*net.parameters(), *optimizer.momenta]])
    return net, optimizer, history


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sgd", lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)),
        ("adamw", lambda groups: torch.optim.AdamW(groups, lr=0.1, betas=(0.9, 0.999))),
    ],
)
def test_sgd_and_adamw_are_torchs_own(name, make):
    torch.manual_seed(0)
    net = make_net("wrn-10-1", classes=3, channels=1).to(memory_format=torch.channels_last)
    theirs = make(
        [
            {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": 0.01},
            {"params": [p for p in net.parameters() if p.ndim <= 1], "weight_decay": 0.0},
        ]
    )
    for step in range(3):
        theirs.zero_grad()
        net(torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(step))).square().mean().backward()
        theirs.step()
    ours, optimizer, _ = trained(name)
    for mine, other in zip(ours.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)  # of steps of 0.1
    kept = [value for group in theirs.param_groups for p in group["params"] for value in theirs.state[p].values()]
    assert len(optimizer.momenta) == len(kept)  # all that it remembers is in a checkpoint
    for mine, other in zip(optimizer.momenta, kept, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)


def test_muon_moves_its_weights_by_hand_and_leaves_the_others_to_sgd():
    start = trained("muon", steps=0)[0]
    net, _, _ = trained("muon", steps=1)
    named = dict(net.named_parameters())
    before = dict(start.named_parameters())
    for name in ("blocks.1.conv1.weight", "blocks.1.conv2.weight", "blocks.2.shortcut.weight"):
        old, new, gradient = before[name].detach(), named[name].detach(), named[name].grad
        rows = 1.9 * gradient.flatten(1)[None]
        turned = orthogonal(rows) if rows.shape[1] <= rows.shape[2] else orthogonal(rows.mT).mT
        wanted = old - 0.1 * turned[0].view(old.shape)
        torch.testing.assert_close(new, wanted * (old.norm() / wanted.norm()), atol=1e-5, rtol=1e-4)
    head, gradient = before["head.weight"].detach(), named["head.weight"].grad
    torch.testing.assert_close(named["head.weight"].detach(), head - 0.1 * 1.9 * (gradient + 0.01 * head))
    taken = {id(p) for p in orthogonal_weights(net)}
    assert id(net.stem.weight) not in taken
    assert len(taken) == sum("conv" in n or "shortcut" in n for n in named)


def test_muon_keeps_every_length():
    start, end = trained("muon", steps=0)[0], trained("muon", steps=5)[0]
    for old, new in zip(orthogonal_weights(start), orthogonal_weights(end), strict=True):
        torch.testing.assert_close(new.norm(), old.norm(), rtol=1e-5, atol=0)
        assert (new - old).norm() / old.norm() > 0.05


def test_a_weight_that_begins_at_0_is_not_muon_s_and_learns():
    net = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3))
    nn.init.zeros_(net[2].weight)
    assert [weight is net[0].weight for weight in orthogonal_weights(net)] == [True]
    optimizer = Optimizer(net, None, torch.tensor(0.1), TrainSettings(optimizer="muon"))
    net(torch.randn(2, 8, 6, 6)).square().sum().backward()
    net(torch.randn(2, 8, 6, 6)).sum().backward()
    optimizer.step(torch.zeros(()))
    assert net[2].weight.abs().sum() > 0
    assert all(parameter.isfinite().all() for parameter in net.parameters())


def test_convolutions_in_groups_and_the_one_that_sees_the_images_are_not_muon_s():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, groups=2), nn.Conv2d(8, 8, 3))
    assert [weight is net[3].weight for weight in orthogonal_weights(net)] == [True]


def names_of_muon(name: str) -> tuple[nn.Module, set[str]]:
    pytest.importorskip("timm")
    net = make_net(name, 5, 3, size=(64, 64))
    taken = {id(weight) for weight in orthogonal_weights(net)}
    return net, {name for name, parameter in net.named_parameters() if id(parameter) in taken}


def test_a_head_that_is_a_convolution_is_not_muon_s():
    """Its length is how sure the net is; with a learning rate of its own it would be moved by both."""
    net, names = names_of_muon("timm:resnetv2_18")
    assert net.head.fc.weight.ndim == 4
    assert "stages.0.blocks.0.conv1.weight" in names
    assert not any(name.startswith("head.") for name in names)
    rates = torch.tensor(0.1), torch.tensor(0.02)
    optimizer = Optimizer(net, None, rates[0], TrainSettings(optimizer="muon"), head_lr=rates[1])
    groups = optimizer._plain.param_groups
    head = next(group for group in groups if group["weight_decay"] and group["lr"] is rates[1])
    assert any(p is net.head.fc.weight for p in head["params"])
    moved = [*optimizer._muon.weights, *(p for group in groups for p in group["params"])]
    assert sorted(map(id, moved)) == sorted(map(id, net.parameters()))


def test_muon_takes_the_same_weights_whether_the_head_is_empty_or_not():
    """A resumed run makes its net anew, with a drawn head, where published weights began with an empty one."""
    drawn, names = names_of_muon("timm:resnetv2_18")
    empty_head(drawn, num_features(drawn))
    taken = {id(weight) for weight in orthogonal_weights(drawn)}
    assert {name for name, parameter in drawn.named_parameters() if id(parameter) in taken} == names


def test_convolutions_that_no_batchnorm_follows_are_not_muon_s():
    _, names = names_of_muon("timm:mobilenetv3_small_050")
    assert not any(".se." in name or name.startswith("conv_head") for name in names)
    assert "blocks.1.0.conv_pw.weight" in names
    ours = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
    assert len(orthogonal_weights(ours)) == 2  # all have one, as torch makes them


@pytest.mark.parametrize("name", ["timm:nf_resnet26", "timm:convnext_atto"])
def test_muon_is_refused_without_batchnorm_whatever_else_normalises(name):
    with pytest.raises(UsageError, match="it is for convolutions with BatchNorm"):
        names_of_muon(name)


@pytest.mark.parametrize("optimizer", ["sgd", "muon", "adamw"])
def test_a_skipped_step_changes_nothing(optimizer):
    _, _, history = trained(optimizer, steps=2, skip_at=1)
    assert all(torch.equal(a, b) for a, b in zip(*history, strict=True))


def test_gradients_are_let_go():
    net, optimizer, _ = trained("muon", steps=1)
    optimizer.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_a_net_that_muon_is_not_for_is_refused_before_anything_is_written(tiny, tmp_path):
    with pytest.raises(UsageError, match="train.optimizer = muon: it is for convolutions with BatchNorm"):
        fit(tiny("maxmatch", net={"name": "plain-conv"}, train={"optimizer": "muon"}), tmp_path / "a", quiet=True)
    assert not (tmp_path / "a" / "recipe.json").exists()


@pytest.mark.parametrize("nesterov", [True, False])
def test_the_second_step_of_muon_by_hand(nesterov):
    """In the first one nesterov makes no difference: it is the length of the direction alone."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 5, 3, 3).to(memory_format=torch.channels_last))
    muon, momentum = Muon([weight], torch.tensor(0.1), 0.8, nesterov), torch.zeros(4, 45)

    def rows(tensor):
        return tensor.detach().permute(0, 2, 3, 1).flatten(1)

    for _ in range(2):
        old, weight.grad = rows(weight).clone(), torch.randn_like(weight)
        muon.step(torch.zeros(()))
        momentum = 0.8 * momentum + rows(weight.grad)
        direction = rows(weight.grad) + 0.8 * momentum if nesterov else momentum
        wanted = old - 0.1 * orthogonal(direction[None])[0]
        torch.testing.assert_close(rows(weight), wanted * (old.norm() / wanted.norm()), atol=1e-5, rtol=1e-4)


def test_what_a_net_excepts_is_not_decayed():
    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.place = nn.Parameter(torch.ones(1, 4, 3))
            self.linear = nn.Linear(3, 2)

        def no_weight_decay(self):
            return {"place"}

    net = nn.Sequential(Embedded())
    optimizer = Optimizer(net, None, torch.tensor(0.1), TrainSettings(weight_decay=0.5))
    groups = {group["weight_decay"]: group["params"] for group in optimizer._plain.param_groups}
    assert [p is net[0].linear.weight for p in groups[0.5]] == [True]
    assert any(p is net[0].place for p in groups[0.0])
    assert [tuple(momentum.shape) for momentum in optimizer.momenta] == [(1, 4, 3), (2, 3), (2,)]  # as ever
