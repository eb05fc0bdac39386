"""Named wrong answers of the start page's exercise."""

from tests.course.exercises.wrong import wrong


@wrong("0.1", says="forgotten return: print shows a value, return hands it over")
def prints_and_returns_nothing(x):
    print(x * 2)


@wrong("0.1", says="in-place change")
def doubles_in_place(x):
    x *= 2
    return x


@wrong("0.1", says="twice as large is `x * 2`")
def squares(x):
    return x**2


@wrong("0.1", says="is not a tensor")
def a_list_of_numbers(x):
    return [2 * number for number in x.flatten()]


@wrong("0.1", says="has another shape")
def adds_up(x):
    return (2 * x).sum()


@wrong("0.1", says="the numbers are others")
def adds_two(x):
    return x + 2
