"""Answers to the exercises of chapter 22."""

import torch

from answers import right, unnamed, wrong

# -- load_renamed -------------------------------------------------------------------------------------


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


@right
def load_renamed(module, tensors, names, transposed):  # in place, by slices, whatever else the module has
    for parameter, tensor in checked(module, tensors, names, transposed):
        parameter.data[...] = tensor
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


def checked(module, tensors, names, transposed):
    """What a right answer would copy: parameters and tensors."""
    missing = [n for n in names if n not in tensors]
    unexpected = [n for n in tensors if n not in names]
    shared = [n for n in names if n in tensors]
    new = {n: tensors[n].T if n in transposed else tensors[n] for n in shared}
    misfits = [n for n in shared if new[n].shape != module.get_parameter(names[n]).shape]
    if missing or unexpected or misfits:
        raise ValueError(f"{missing} {unexpected} {misfits}")
    return [(module.get_parameter(names[n]), new[n]) for n in shared]


@wrong("parameters replaced or frozen")
def load_renamed(module, tensors, names, transposed):
    for parameter, tensor in checked(module, tensors, names, transposed):
        parameter.data = tensor
    return module


@wrong("file changed")
def load_renamed(module, tensors, names, transposed):
    pairs = checked(module, tensors, names, transposed)
    with torch.no_grad():
        for name, (parameter, tensor) in zip(list(names), pairs, strict=True):
            parameter.copy_(tensor)
            tensors.pop(name)
    return module


@wrong("shapes taken for sizes")
def load_renamed(module, tensors, names, transposed):
    wrong_names = [n for n in names if n not in tensors] + [n for n in tensors if n not in names]
    new = {n: tensors[n].T if n in transposed else tensors[n] for n in names if n in tensors}
    wrong_names += [n for n, t in new.items() if t.numel() != module.get_parameter(names[n]).numel()]
    if wrong_names:
        raise ValueError(" ".join(wrong_names))
    with torch.no_grad():
        for n, t in new.items():
            parameter = module.get_parameter(names[n])
            parameter.copy_(t.reshape(parameter.shape))
    return module


def _misfits(module, tensors, names, look):
    """The names that are missing, unexpected, or of another size in the eyes of ``look``."""
    bad = [*(names.keys() ^ tensors.keys())]
    return bad + [n for n in names.keys() & tensors.keys() if not look(tensors[n], module.get_parameter(names[n]))]


@wrong("another module")
def load_renamed(module, tensors, names, transposed):
    turned = {n: t.T if n in transposed else t for n, t in tensors.items()}
    if bad := _misfits(module, turned, names, lambda t, p: t.shape == p.shape):
        raise ValueError(f"{bad}")
    filled = type(module)(module.q_proj.in_features, module.up.out_features)
    filled.load_state_dict({ours: turned[n] for n, ours in names.items()})
    return filled


@wrong("shapes compared before transposing")
def load_renamed(module, tensors, names, transposed):
    if bad := _misfits(module, tensors, names, lambda t, p: t.shape == p.shape):
        raise ValueError(f"these do not fit: {bad}")
    module.load_state_dict({ours: tensors[n].T if n in transposed else tensors[n] for n, ours in names.items()})
    return module


@wrong("table not used")
def load_renamed(module, tensors, names, transposed):
    state = module.state_dict()
    if bad := state.keys() ^ tensors.keys():
        raise ValueError(f"no place or no tensor for {sorted(bad)}")
    module.load_state_dict({n: t.T if n in transposed else t for n, t in tensors.items()})
    return module


@wrong("shape noticed too late")
def load_renamed(module, tensors, names, transposed):
    bad = [n for n in names if n not in tensors] + [n for n in tensors if n not in names]
    shared = names.keys() & tensors.keys()
    bad += [n for n in shared if tensors[n].numel() != module.get_parameter(names[n]).numel()]
    if bad:
        raise ValueError(str(bad))
    with torch.no_grad():
        for name, ours in names.items():
            module.get_parameter(ours).copy_(tensors[name].T if name in transposed else tensors[name])
    return module


@wrong("tensors exchanged")
def load_renamed(module, tensors, names, transposed):
    turned = [t for _, t in checked(module, tensors, names, transposed)]
    if len(turned) < len(tensors):
        raise ValueError(f"{names.keys() ^ tensors.keys()}")
    with torch.no_grad():
        for parameter, tensor in zip(module.parameters(), turned, strict=True):  # in the order of the table
            parameter.copy_(tensor)
    return module


@wrong("type of the file")
def load_renamed(module, tensors, names, transposed):
    for parameter, tensor in checked(module, tensors, names, transposed):
        parameter.data = tensor.clone()
    return module


@wrong("settings changed")
def load_renamed(module, tensors, names, transposed):
    module.eval()
    for parameter, tensor in checked(module, tensors, names, transposed):
        parameter.data.copy_(tensor)
    return module


@unnamed("names of two parts only")
def load_renamed(module, tensors, names, transposed):
    for ours in names.values():
        part, leaf = ours.split(".")
        getattr(getattr(module, part), leaf)
    for parameter, tensor in checked(module, tensors, names, transposed):
        parameter.data.copy_(tensor)
    return module


@unnamed("refused for the file before")
def load_renamed(module, tensors, names, transposed, bad=[]):  # noqa: B006
    bad += [n for n in names if n not in tensors] + [n for n in tensors if n not in names]
    new = {n: t.T if n in transposed else t for n, t in tensors.items() if n in names}
    bad += [n for n in new if new[n].shape != module.get_parameter(names[n]).shape]
    if bad:
        raise ValueError(str(bad))
    with torch.no_grad():
        for n, tensor in new.items():
            module.get_parameter(names[n]).copy_(tensor)
    return module


@unnamed("first axis compared")
def load_renamed(module, tensors, names, transposed):
    turned = {n: t.T if n in transposed else t for n, t in tensors.items()}
    if bad := _misfits(module, turned, names, lambda t, p: len(t) == len(p)):
        raise ValueError(f"{bad}")
    for n, ours in names.items():
        module.get_parameter(ours).data.copy_(turned[n])
    return module


@unnamed("axes of length 1 not compared")
def load_renamed(module, tensors, names, transposed):
    turned = {n: t.T if n in transposed else t for n, t in tensors.items()}
    if bad := _misfits(module, turned, names, lambda t, p: t.squeeze().shape == p.squeeze().shape):
        raise ValueError(f"{bad}")
    for n, ours in names.items():
        module.get_parameter(ours).data.copy_(turned[n])
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
