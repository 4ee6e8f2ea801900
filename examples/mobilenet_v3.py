"""MobileNetV3-Small, a real network, on gable for NumPy: depthwise convolutions, squeeze-and-excitation, hard swish.

    python3 examples/mobilenet_v3.py                         # random weights and image
    python3 examples/mobilenet_v3.py weights.npz image.npy   # torchvision's weights; image: (N, 3, H, W), normalised

torchvision's weights as NumPy reads them, and an image as they want it, resized and normalised as ImageNet's were:

    weights = torchvision.models.MobileNet_V3_Small_Weights.DEFAULT
    net = torchvision.models.mobilenet_v3_small(weights=weights)
    numpy.savez("weights.npz", **{name: value.numpy() for name, value in net.state_dict().items()})
    numpy.save("image.npy", weights.transforms()(PIL.Image.open("image.jpg").convert("RGB"))[None].numpy())

Where torchvision is installed, its own network checks the result.
"""

import sys
import time

import gable
import numpy as np

# Kernel, input channels, expanded, output, squeeze-and-excitation, function, stride: torchvision's table.
BLOCKS = (
    (3, 16, 16, 16, True, "relu", 2),
    (3, 16, 72, 24, False, "relu", 2),
    (3, 24, 88, 24, False, "relu", 1),
    (5, 24, 96, 40, True, "hard_swish", 2),
    (5, 40, 240, 40, True, "hard_swish", 1),
    (5, 40, 240, 40, True, "hard_swish", 1),
    (5, 40, 120, 48, True, "hard_swish", 1),
    (5, 48, 144, 48, True, "hard_swish", 1),
    (5, 48, 288, 96, True, "hard_swish", 2),
    (5, 96, 576, 96, True, "hard_swish", 1),
    (5, 96, 576, 96, True, "hard_swish", 1),
)


def folded(state, name):
    """A convolution's weights and bias with the batch norm behind it (eps 0.001) folded into both."""
    scale = state[f"{name}.1.weight"] / np.sqrt(state[f"{name}.1.running_var"] + 1e-3)
    bias = state[f"{name}.1.bias"] - scale * state[f"{name}.1.running_mean"]
    return state[f"{name}.0.weight"] * scale.reshape(-1, 1, 1, 1), bias


def conv(state, name, device, **attributes):
    weights, bias = folded(state, name)
    return gable.Conv2d(weights, bias, padding=weights.shape[2] // 2, device=device, **attributes)


class SqueezeExcite:
    """Each channel times a factor that two small layers make of all channels' means."""

    def __init__(self, state, name, device):
        def layer(part, function):
            weights, bias = state[f"{name}.{part}.weight"], state[f"{name}.{part}.bias"]
            return gable.Linear(weights.reshape(weights.shape[:2]), bias, activation=function, device=device)

        self.device, self.squeeze, self.excite = device, layer("fc1", "relu"), layer("fc2", "hard_sigmoid")

    def __call__(self, x):
        return gable.multiply(x, self.excite(self.squeeze(x.mean((2, 3)))), device=self.device, out=x)


class Block:
    """Expand, depthwise, squeeze-and-excitation, project; and the input again where shapes allow it."""

    def __init__(self, state, name, row, device):
        kernel, inputs, expanded, outputs, has_excite, function, stride = row
        self.is_residual, self.device, self.layers = stride == 1 and inputs == outputs, device, []
        names = (f"{name}.block.{i}" for i in range(4))
        if expanded != inputs:
            self.layers.append(conv(state, next(names), device, activation=function))
        self.layers.append(conv(state, next(names), device, stride=stride, groups=expanded, activation=function))
        if has_excite:
            self.layers.append(SqueezeExcite(state, next(names), device))
        self.layers.append(conv(state, next(names), device))

    def __call__(self, x):
        y = x
        for layer in self.layers:
            y = layer(y)
        return gable.add(x, y, device=self.device, out=y) if self.is_residual else y


class MobileNetV3Small:
    def __init__(self, state, device=None):
        self.layers = [conv(state, "features.0", device, stride=2, activation="hard_swish")]
        self.layers += [Block(state, f"features.{i}", row, device) for i, row in enumerate(BLOCKS, 1)]
        self.layers.append(conv(state, "features.12", device, activation="hard_swish"))
        self.hidden, self.classify = (
            gable.Linear(state[f"classifier.{i}.weight"], state[f"classifier.{i}.bias"], activation=function, device=device)
            for i, function in ((0, "hard_swish"), (3, None)))

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.classify(self.hidden(x.mean((2, 3))))


def random_state(seed=1):
    """Weights of torchvision's names and shapes."""
    random, state = np.random.default_rng(seed), {}

    def layer(name, *shape):
        state[f"{name}.weight"] = (random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)
        state[f"{name}.bias"] = (0.1 * random.standard_normal(shape[0])).astype(np.float32)

    def with_norm(name, *shape):
        layer(f"{name}.0", *shape)
        del state[f"{name}.0.bias"]
        for part, low in (("weight", 0.5), ("bias", -0.5), ("running_mean", -0.5), ("running_var", 0.5)):
            state[f"{name}.1.{part}"] = (low + random.random(shape[0])).astype(np.float32)

    with_norm("features.0", 16, 3, 3, 3)
    for i, (kernel, inputs, expanded, outputs, has_excite, _, _) in enumerate(BLOCKS, 1):
        names = (f"features.{i}.block.{j}" for j in range(4))
        if expanded != inputs:
            with_norm(next(names), expanded, inputs, 1, 1)
        with_norm(next(names), expanded, 1, kernel, kernel)
        if has_excite:
            name, squeezed = next(names), max(8, (expanded // 4 + 4) // 8 * 8)
            layer(f"{name}.fc1", squeezed, expanded, 1, 1)
            layer(f"{name}.fc2", expanded, squeezed, 1, 1)
        with_norm(next(names), outputs, expanded, 1, 1)
    with_norm("features.12", 576, 96, 1, 1)
    layer("classifier.0", 1024, 576)
    layer("classifier.3", 1000, 1024)
    return state


def check(state, x, scores):
    """The greatest difference from torchvision's network, or None without it."""
    try:
        import torch
        from torchvision.models import mobilenet_v3_small
    except ImportError:
        return None
    net = mobilenet_v3_small().eval()
    net.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()}, strict=False)
    with torch.no_grad():
        return float(np.abs(net(torch.from_numpy(x)).numpy() - scores).max())


if __name__ == "__main__":
    state = dict(np.load(sys.argv[1])) if len(sys.argv) > 1 else random_state()
    x = np.load(sys.argv[2]) if len(sys.argv) > 2 else np.random.default_rng(2).random((1, 3, 224, 224), np.float32)
    net = MobileNetV3Small(state)
    scores = net(x)  # the first call with a shape plans it
    start = time.perf_counter()
    net(x)
    milliseconds = 1e3 * (time.perf_counter() - start)
    print(f"{milliseconds:.1f} ms for {len(x)} of {x.shape[2]}x{x.shape[3]}; best classes {np.argsort(-scores[0])[:5]}")
    difference = check(state, x, scores)
    if difference is None:
        print("no torchvision to check with")
    else:
        print(f"differs from torchvision's by {difference:.1e} of {np.abs(scores).max():.2g}")
