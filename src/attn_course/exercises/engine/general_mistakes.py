"""Name the mistakes that every check knows, and the errors that show one. Used from chapter 0 on."""

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
# The mistakes that every check knows, each with its symptom; an exercise may add a sentence of its own.
EVERY_CHECK_KNOWS = {
    CHANGES_ITS_INPUT: "What was handed in is something else afterwards.",
    NO_GRADIENT: "The numbers are right, and no gradient comes back to an input or a parameter.",
    WRONG_GRADIENT: "The numbers are right, and the gradient is not.",
    FLOAT32_INSIDE: "In float64 the numbers are right to float32's precision only.",
    TAKES_TOO_LONG: "The answer took longer than the check waits.",
    PARAMETER_CHANGED: "Numbers are written into a parameter while PyTorch records a graph.",
    NOT_AS_ASKED: "A class, a name or a parameter is not the one that the exercise asks for.",
    ANOTHER_DEFAULT: "An argument has lost the default that the exercise's first line gives it.",
    SIZE_IS_NO_INTEGER: "A size or an index is a number with a point.",
    NO_PARAMETER: "Something else is put where a module has a parameter.",
    KEPT_BETWEEN_CALLS: "Called again, the answer returns something else, or what it returned before has changed.",
    NOTHING_RETURNED: "What comes back is None.",
    **diagnose_output.SYMPTOMS,
    **diagnose_input.SYMPTOMS,
}
# Errors that say the same of every answer, and what that is.
ERRORS = {
    "leaf Variable that requires grad is being used in an in-place operation": (
        PARAMETER_CHANGED,
        "Writing into what learns, a parameter or an input, is no step to be differentiated, and PyTorch refuses it "
        "unless you say that no gradient is wanted.",
    ),
    (
        "tuple of ints, ?(but got|not) float|indices must be .*not float"
        "|'float' object cannot be interpreted as an integer"
    ): (
        SIZE_IS_NO_INTEGER,
        "A size or an index is a number with a point here, and has to be a whole one. Of whole numbers, / makes the "
        "former even where they divide evenly, and // does not.",
    ),
    "cannot assign .* as parameter": (
        NO_PARAMETER,
        "Something else stands where a module has a parameter, and only an nn.Parameter, which is trained, may stand "
        "there.",
    ),
    "(?i)(?=.*double).*(same dtype|scalar type|dtypes match)": (
        FLOAT32_INSIDE,
        "Two types meet: something inside does not have the type of what was given.",
    ),
}
