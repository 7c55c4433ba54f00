"""The generic mistakes that every check knows, and errors that reveal one. Used from chapter 0 on."""

from attn_course.exercises.engine import diagnose_input, diagnose_output

CHANGES_ITS_INPUT = "changes its input"
FLOAT32_INSIDE = "float32 inside"
NO_GRADIENT = "no gradient"
WRONG_GRADIENT = "wrong gradient"
TAKES_TOO_LONG = "takes too long"
PARAMETER_CHANGED = "parameter changed under autograd"
ANOTHER_DEFAULT = "another default"
NOT_AS_ASKED = "not built as asked"
SIZE_IS_NO_INTEGER = "a size that is no integer"
NO_PARAMETER = "a tensor for a parameter"
KEPT_BETWEEN_CALLS = "something kept between calls"
NOTHING_RETURNED = "nothing returned"
EXCLUDED = "a function that the exercise excludes"
# The mistakes that every check knows, each with its symptom; an exercise may add a sentence of its own.
GENERIC_MISTAKES = {
    CHANGES_ITS_INPUT: "The function changes its input.",
    NO_GRADIENT: "The numbers are right, but no gradient flows back to an input or a parameter.",
    WRONG_GRADIENT: "The numbers are right, but the gradient is wrong.",
    FLOAT32_INSIDE: "In float64 the numbers are right only to the precision of float32.",
    TAKES_TOO_LONG: "The code takes longer than the time limit of the check.",
    PARAMETER_CHANGED: "The code writes into a parameter while PyTorch records the graph.",
    NOT_AS_ASKED: "A class, a name or a parameter differs from the text of the exercise.",
    ANOTHER_DEFAULT: "An argument lacks the default value that the first line of the exercise has.",
    SIZE_IS_NO_INTEGER: "A size or an index is a float instead of an integer.",
    NO_PARAMETER: "The code assigns something else to the name of a parameter.",
    KEPT_BETWEEN_CALLS: "A second call returns another result, or it changes the result of the first call.",
    NOTHING_RETURNED: "The function returns None.",
    EXCLUDED: "The code calls a function of PyTorch that the exercise excludes.",
    **diagnose_output.SYMPTOMS,
    **diagnose_input.SYMPTOMS,
}
# Errors that say the same of every answer, and what that is.
ERRORS = {
    "leaf Variable that requires grad is being used in an in-place operation": (
        PARAMETER_CHANGED,
        "PyTorch cannot differentiate a write into a parameter or an input, so it refuses the write "
        "outside torch.no_grad().",
    ),
    (
        "tuple of ints, ?(but got|not) float|indices must be .*not float"
        "|'float' object cannot be interpreted as an integer"
    ): (
        SIZE_IS_NO_INTEGER,
        "A size or an index is a float here, but it must be an integer. The operator / returns a float even if both "
        "numbers are integers. Use // instead.",
    ),
    "cannot assign .* as parameter": (
        NO_PARAMETER,
        "Your code assigns something else to the name of a parameter. Only an nn.Parameter can be assigned there.",
    ),
    "(?i)(?=.*double).*(same dtype|scalar type|dtypes match)": (
        FLOAT32_INSIDE,
        "Your code combines tensors of two types. One of them does not have the type of the inputs.",
    ),
}
