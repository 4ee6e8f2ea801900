"""A program outside gable's tree that knows the installed package by PYTHONPATH alone: one convolution of ones."""

import gable
import numpy as np

y = gable.Conv2d(np.ones((8, 4, 3, 3), np.float32))(np.ones((1, 4, 8, 8), np.float32))
assert y.shape == (1, 8, 6, 6) and (y == 36).all()
print("right, by", gable._library()._name)
