"""scikit-learn's manners: python examples/estimator.py

Rows, arrays, tensors or files; y is -1 where there is no label. It sits in a Pipeline and a GridSearchCV like any
other classifier; LabeledKFold keeps the unlabelled rows in training and tests on labelled ones alone.
"""

import sys
import tempfile

from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score

from maxmatch import LabeledKFold, MaxMatchClassifier


def main(steps: int = 200) -> None:
    digits = load_digits()
    y = digits.target.copy()
    y[50:1200] = -1  # the first fifty are labelled, the last 597 are for testing
    train, test = slice(1200), slice(1200, None)

    for method in ("supervised", "maxmatch"):
        classifier = MaxMatchClassifier(method, steps=steps, batch=16, random_state=1)
        classifier.fit(digits.data[train], y[train])
        right = classifier.transduction_[50:] == digits.target[50:1200]
        error = 100 - 100 * classifier.score(digits.data[test], digits.target[test])
        print(f"{method}: error {error:.1f} % on new digits; {100 * right.mean():.1f} % of the missing labels found")

    with tempfile.TemporaryDirectory() as folder:
        classifier.save(f"{folder}/digits.safetensors")
        again = MaxMatchClassifier.load(f"{folder}/digits.safetensors")
        print("predicted", *again.predict(digits.data[test][:10]))
        print("truth    ", *digits.target[test][:10])

    scores = cross_val_score(classifier, digits.data[train], y[train], cv=LabeledKFold(2))
    print("accuracy on the two halves of the labels, each unseen:", *scores.round(2))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
