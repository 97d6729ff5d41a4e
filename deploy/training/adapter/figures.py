"""Computes figures of scores on held-out examples, and chooses the threshold, by the rules of
`src/lab/gate_training/figures.rs`. An example is its score and whether its answer is the first one, "True"."""

import itertools

Told = list[tuple[float, bool]]


def falling(told: Told) -> Told:
    return sorted(told, key=lambda it: -it[0])


def best_threshold(told: Told) -> float:
    """Returns the threshold within 0..1 that, of those whose F1 is within one standard error of the best (the rule of
    one standard error, Breiman et al. 1984), takes the middle number of examples. One half if no example is positive."""
    told = falling(told)
    positives = sum(is_positive for _, is_positive in told)
    # Thresholds between two different scores: how many examples each takes, its F1, and its place.
    thresholds, right = [], 0
    for at, (score, is_positive) in enumerate(told):
        right += is_positive
        below = told[at + 1][0] if at + 1 < len(told) else 0.0
        if below < score:
            thresholds.append((at + 1, 2.0 * right / (at + 1 + positives), (below + score) / 2))
    best = max((f1 for _, f1, _ in thresholds), default=0.0)
    error = (best * (1.0 - best) / max(positives, 1)) ** 0.5
    good = [it for it in thresholds if it[1] >= best - error and best > 0.0]
    if not good:
        return 0.5
    middle = (good[0][0] + good[-1][0]) // 2
    _, _, nearest = min(good, key=lambda it: abs(it[0] - middle))
    return min(max(nearest, 0.001), 0.999)


def figures(told: Told, threshold: float) -> dict[str, float]:
    """Returns precision, recall and F1 at a threshold, and the area under the ROC curve."""
    positives = sum(is_positive for _, is_positive in told)
    taken = [is_positive for score, is_positive in told if score >= threshold]
    right = sum(taken)
    share = lambda part, whole: part / whole if whole else 0.0
    return {
        "precision": share(right, len(taken)),
        "recall": share(right, positives),
        "f1": share(2.0 * right, len(taken) + positives),
        "auc": area(told),
    }


def area(told: Told) -> float:
    """Returns the probability that a positive example has a higher score than another one, with ties counted half."""
    above, wins, negatives = 0, 0.0, 0
    for _, alike in itertools.groupby(falling(told), key=lambda it: it[0]):
        labels = [is_positive for _, is_positive in alike]
        right = sum(labels)
        wins += (len(labels) - right) * (above + right / 2.0)
        above += right
        negatives += len(labels) - right
    return wins / (above * negatives) if above and negatives else 0.5
