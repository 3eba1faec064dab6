"""scikit-learn's manners: python examples/estimator.py

Rows, arrays, tensors or files; y is -1 where there is no label. It sits in a Pipeline and a GridSearchCV like any
other classifier; LabeledKFold keeps the unlabelled rows in training and tests on labelled ones alone.
"""

import sys
import tempfile

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from maxmatch import LabeledKFold, MaxMatchClassifier


def main(steps: int = 200) -> None:
    digits = load_digits()
    y = digits.target.copy()
    y[50:1200] = -1  # the first fifty are labelled, the last 597 are for testing
    train, test = slice(1200), slice(1200, None)

    classifier = MaxMatchClassifier(steps=steps, batch=16, random_state=1)
    search = GridSearchCV(classifier, {"method": ["supervised", "maxmatch"]}, cv=LabeledKFold(2))
    search.fit(digits.data[train], y[train])
    for name, score in zip(search.cv_results_["param_method"], search.cv_results_["mean_test_score"], strict=True):
        print(f"{name}: {100 - 100 * score:.1f} % error across the folds of 50 labels")

    best = search.best_estimator_
    print(f"{best.method} on new digits: error {100 - 100 * best.score(digits.data[test], digits.target[test]):.1f} %")
    right = best.transduction_[50:] == digits.target[50:1200]
    print(f"labels found for the unlabelled ones: {100 * right.mean():.1f} % right")

    with tempfile.TemporaryDirectory() as folder:
        best.save(f"{folder}/digits.safetensors")
        again = MaxMatchClassifier.load(f"{folder}/digits.safetensors")
        print("predicted", *again.predict(digits.data[test][:10]))
        print("truth    ", *digits.target[test][:10])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
