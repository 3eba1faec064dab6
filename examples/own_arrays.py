"""Your own arrays, most of them unlabelled: python examples/own_arrays.py

Labels are 0, 1, ...; -1 is unlabelled. Images are uint8, (N, H, W), (N, H, W, C) or (N, C, H, W).
"""

import sys
import tempfile

import numpy as np
from sklearn.datasets import load_digits

import maxmatch


def main(steps: int = 300) -> None:
    digits = load_digits()
    images = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    labels = digits.target.copy()
    labels[100:1200] = -1  # the first hundred are labelled, the last 597 are for testing
    data = maxmatch.from_arrays(images[:1200], labels[:1200], images[1200:], labels[1200:])

    recipe = maxmatch.compose("arrays", config="digits", given={"train": {"steps": steps}})
    with tempfile.TemporaryDirectory() as folder:
        result = maxmatch.fit(recipe, out=f"{folder}/run", data=data)
    print(f"{result['labels']} labels, error {result['error']['last']:.1f} %")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
