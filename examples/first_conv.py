import gable
import numpy as np

weights = np.full((128, 64, 3, 3), 1 / 64, np.float32)  # (K, C/groups, R, S), as PyTorch has them
conv = gable.Conv2d(weights, padding=1, activation="relu", max_pool=2)
y = conv(np.ones((1, 64, 56, 56), np.float32))  # any batch and image size, from any thread
print("y[0] =", y[0, 0, 0, 0], y.shape)
