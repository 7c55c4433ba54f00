"""What the processes of chapter 20 compute is what one process computes."""

import copy

import pytest
import torch
import torch.nn.functional as F

from attn_course import LanguageModel, MultiHeadAttention
from attn_course.distributed import demos as tasks

CLOSE = {"rtol": 0.0, "atol": 1e-12}  # float64, gradients below 1


def random_ids(*shape, seed=0):
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return LanguageModel(11, d_model=12, num_heads=2, num_layers=2, d_ff=7).double()


def of_one_process(model, inputs, targets):
    alone = copy.deepcopy(model)
    F.cross_entropy(alone(inputs).flatten(0, 1), targets.flatten(), ignore_index=-100).backward()
    return {name: p.grad for name, p in alone.named_parameters()}


def distance(found, expected):
    return max((found[name] - expected[name]).abs().max().item() for name in expected)


def uneven():
    targets = random_ids(4, 5, seed=1)
    targets[0, 1:] = targets[1, 2:] = tasks.IGNORED  # 3 words in the first half, 10 in the second
    return targets


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("loss", [tasks.mean_of_means, tasks.mean_over_all])
def test_shards_of_a_batch_give_the_gradient_of_the_whole_batch(processes, model, loss, ranks):
    inputs, targets = random_ids(4, 5), random_ids(4, 5, seed=1)
    for found in processes.run(tasks.gradients_of_shards, model, loss, inputs, targets, num_processes=ranks):
        torch.testing.assert_close(found, of_one_process(model, inputs, targets), **CLOSE)


def test_over_unequal_shards_the_mean_of_means_is_wrong_and_the_mean_over_all_is_right(processes, model):
    inputs, targets = random_ids(4, 5), uneven()
    expected = of_one_process(model, inputs, targets)
    run = (tasks.gradients_of_shards, model)
    wrong, _ = processes.run(*run, tasks.mean_of_means, inputs, targets, num_processes=2)
    right, _ = processes.run(*run, tasks.mean_over_all, inputs, targets, num_processes=2)
    assert distance(wrong, expected) > 1e-2
    torch.testing.assert_close(right, expected, **CLOSE)


def test_a_model_of_which_each_process_holds_a_share_has_the_same_gradient(processes, model):
    inputs, targets = random_ids(4, 5), uneven()
    loss = tasks.mean_over_all
    found = processes.run(tasks.gradients_of_sharded_model, model, loss, inputs, targets, num_processes=2)
    assert sum(held for held, _ in found) == sum(p.numel() for p in model.parameters())
    for held, gradients in found:
        assert abs(held / sum(p.numel() for p in model.parameters()) - 0.5) < 0.05
        torch.testing.assert_close(gradients, of_one_process(model, inputs, targets), **CLOSE)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_heads_on_different_processes_add_up_to_the_layer(processes, ranks):
    torch.manual_seed(1)
    layer, x = MultiHeadAttention(20, num_heads=4).double(), torch.randn(3, 7, 20, dtype=torch.float64)
    expected = layer(x, is_causal=True)[0].detach()
    for found in processes.run(tasks.attend_with_own_heads, layer, x, num_processes=ranks):
        torch.testing.assert_close(found.detach(), expected, **CLOSE)
