"""Answers to the exercises of chapter 22."""

import torch

from answers import right, unnamed, wrong
from attn_course.exercises.engine.edits import Edited

# -- load_renamed -------------------------------------------------------------------------------------


@right
def load_renamed(module, tensors, names, transposed):  # in place, by slices
    bad = [n for n in names if n not in tensors] + [n for n in tensors if n not in names]
    new = {n: tensors[n].T if n in transposed else tensors[n] for n in names if n in tensors}
    bad += [n for n in new if new[n].shape != module.get_parameter(names[n]).shape]
    if bad:
        raise ValueError(str(bad))
    for n, tensor in new.items():
        module.get_parameter(names[n]).data[...] = tensor
    return module


CALL, COMPARED = "module.get_parameter(names[n])", "new[n].shape != module.get_parameter(names[n]).shape"
EDITS = {  # what a learner changes in the answer above
    "parameters replaced or frozen": {".data[...] = tensor": ".data = tensor"},
    "file changed": {"[...] = tensor\n": "[...] = tensor\n        tensors.pop(n)\n"},
    "shapes taken for sizes": {
        COMPARED: f"new[n].numel() != {CALL}.numel()",
        "[...] = tensor": f"[...] = tensor.reshape({CALL}.shape)",
    },
    "another module": {
        "    for n,": "    module = type(module)(module.q_proj.in_features, module.up.out_features)\n    for n,"
    },
    "shapes compared before transposing": {
        "tensors[n].T if n in transposed else tensors[n]": "tensors[n]",
        "[...] = tensor": "[...] = tensor.T if n in transposed else tensor",
    },
    "shape noticed too late": {COMPARED: f"new[n].numel() != {CALL}.numel()"},
    "tensors exchanged": {  # in the order of the table
        "n, tensor in new.items()": "p, tensor in zip(module.parameters(), new.values(), strict=True)",
        f"{CALL}.data": "p.data",
    },
    "type of the file": {".data[...] = tensor": ".data = tensor.clone()"},
    "settings changed": {"    bad = ": "    module.eval()\n    bad = "},
}
for mistake, edits in EDITS.items():
    wrong(mistake)(Edited(load_renamed, edits).answer)
EDITS = {
    "names of two parts only": {"    for n,": "    dict(ours.split('.') for ours in names.values())\n    for n,"},
    "refused for the file before": {"transposed)": "transposed, bad=[])", "bad = [": "bad += ["},
    "first axis compared": {COMPARED: f"len(new[n]) != len({CALL})"},
    "axes of length 1 not compared": {COMPARED: f"new[n].squeeze().shape != {CALL}.squeeze().shape"},
}
for mistake, edits in EDITS.items():
    unnamed(mistake)(Edited(load_renamed, edits).answer)


@right
def load_renamed(module, tensors, names, transposed):  # by sets, and a state_dict at the end
    wanted = {place: tensor.shape for place, tensor in module.state_dict().items()}
    given = {}
    for theirs, tensor in tensors.items():
        given[names.get(theirs, theirs)] = tensor.t() if theirs in transposed else tensor
    problems = [f"no tensor for {place}" for place in wanted if place not in given]
    problems += [f"no place for {place}" for place in given if place not in wanted]
    problems += [f"{p}: {t.shape}" for p, t in given.items() if p in wanted and t.shape != wanted[p]]
    if problems:
        raise ValueError("; ".join(problems))
    module.load_state_dict(given)
    return module


@right
def load_renamed(module, tensors, names, transposed):  # undoes what it has done
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    new = {names.get(n, n): t.T.clone() if n in transposed else t for n, t in tensors.items()}
    try:
        module.load_state_dict(new)
    except RuntimeError as error:
        module.load_state_dict(before)
        raise ValueError(str(error)) from error
    return module


@wrong("another error")
def load_renamed(module, tensors, names, transposed):  # a KeyError is a refusal, but says one name
    places = {ours: tensors[theirs] for theirs, ours in names.items()}
    extra = [theirs for theirs in tensors if theirs not in names]
    for theirs in transposed:
        places[names[theirs]] = places[names[theirs]].T
    extra += [ours for ours in places if places[ours].shape != module.get_parameter(ours).shape]
    if extra:
        raise ValueError(f"not wanted: {extra}")
    module.load_state_dict(places)
    return module


@wrong("table not used")
def load_renamed(module, tensors, names, transposed):
    state = module.state_dict()
    if bad := state.keys() ^ tensors.keys():
        raise ValueError(f"no place or no tensor for {sorted(bad)}")
    module.load_state_dict({n: t.T if n in transposed else t for n, t in tensors.items()})
    return module


# -- mean_pool ----------------------------------------------------------------------------------------


@right
def mean_pool(hidden, mask):
    return torch.stack([h[m].mean(dim=0) for h, m in zip(hidden, mask, strict=True)])


@right
def mean_pool(hidden, mask):
    shares = mask / mask.sum(dim=-1, keepdim=True)
    return torch.einsum("bs,bse->be", shares.to(hidden), hidden)


@wrong("all sentences in one")
def mean_pool(hidden, mask):
    summed = (hidden * mask[..., None]).sum(dim=(0, 1))
    return summed / mask.sum()


@wrong("added up over the width")
def mean_pool(hidden, mask):
    return (hidden * mask[..., None]).mean(-1)


@wrong("first and last token left out")
def mean_pool(hidden, mask):
    rows = [h[m][1:-1] if m.sum() > 2 else h[m] for h, m in zip(hidden, mask, strict=True)]
    return torch.stack([row.mean(0) for row in rows])


@wrong("rounded to half precision")
def mean_pool(hidden, mask):
    real = mask.unsqueeze(2).to(torch.bfloat16)
    return ((hidden.to(torch.bfloat16) * real).sum(1) / real.sum(1)).to(hidden.dtype)


@unnamed("tokens taken to stand together")
def mean_pool(hidden, mask):
    n = mask.sum(dim=1, keepdim=True)
    place = torch.arange(mask.size(1), device=mask.device) - mask.int().argmax(dim=1, keepdim=True)
    taken = (place >= 0) & (place < n)
    return (hidden * taken[..., None]).sum(dim=1) / n


# -- share_on_previous --------------------------------------------------------------------------------


@right
def share_on_previous(weights, mask):  # sentence by sentence
    total, count = torch.zeros(weights.size(1)).to(weights), 0
    for maps, n in zip(weights, mask.sum(dim=1).tolist(), strict=True):
        for t in range(1, n):
            total, count = total + maps[:, t, t - 1], count + 1
    return total / count


@right
def share_on_previous(weights, mask):
    queries = torch.arange(1, mask.size(1), device=mask.device)
    looks = weights[:, :, queries, queries - 1].transpose(1, 2)  # (B, S - 1, H)
    return looks[mask[:, 1:]].mean(dim=0)


@wrong("mean of the sentences' means")
def share_on_previous(weights, mask):
    looks = weights.diagonal(-1, dim1=-2, dim2=-1) * mask[:, None, 1:]
    return (looks.sum(dim=-1) / (mask.sum(dim=1, keepdim=True) - 1)).mean(dim=0)


def _shares(weights, mask, column, counts=lambda mask: mask[:, 1:]):
    """The mean weight on ``column(t)``, over the tokens t that count."""
    S = weights.size(-1)
    looks = torch.stack([weights[:, :, t, column(t)] for t in range(1, S)], dim=-1)
    counted = counts(mask)[:, None].to(weights.dtype)
    return (looks * counted).sum((0, 2)) / counted.sum()


@wrong("one number for each sentence")
def share_on_previous(weights, mask):
    return torch.stack([_shares(w[None], m[None], lambda t: t - 1) for w, m in zip(weights, mask, strict=True)])


@wrong("first sentence only")
def share_on_previous(weights, mask):
    return _shares(weights[:1], mask[:1], lambda t: t - 1)


@wrong("two tokens back")
def share_on_previous(weights, mask):
    looks = weights.diagonal(-2, 2, 3)
    counted = mask[:, None, 2:]
    return (looks * counted).sum((0, 2)) / counted.sum()


@wrong("nan for one token")
def share_on_previous(weights, mask):
    long = (mask.sum(1) - 1)[:, None]
    each = (weights.diagonal(-1, 2, 3) * mask[:, None, 1:]).sum(-1) / long
    return (each * long / long.sum()).sum(0)
