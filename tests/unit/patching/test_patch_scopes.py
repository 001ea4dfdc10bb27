"""What encloses a line, read from braces and indentation."""

from __future__ import annotations

from sparkbuild.source.patching.scopes import chains
from sparkbuild.source.patching.unified import split

CODE = """namespace n {
static int plain(int a,
                 int b) {
    if (a) {
        // 1: plain {
        for (int i = 0; i < 3; ++i) {
            use("}", '}', R"x(})x"); // 2: plain
        }
    }
    auto f = [&](int x) {
        return x; // 3: plain, lambda
    };
#ifdef GPU
    if (a) {
#else
    if (b) {
#endif
        b += 1; // 4: plain
    }
    static const int list[] = {
        1, // 5: plain
    };
}
struct base : other<int> {
    int field = 0; // 6: base
    base(int a) : field(a), more{} {
        field = 1; // 7: base, constructor
    }
    bool get() const { return field; }
    // 8: base
    virtual void run() override {
        // 9: base, run
    }
};
template <typename T> class typed {
public:
    void inside() {
        // 10: typed, inside
    }
};
enum e { A, B };
#define MACRO(x) if (x) {
int x = 0; // 11:
}
void last() {
    // 12: last
"""
EXPECTED = {
    1: ("static int plain(int a, int b)",),
    2: ("static int plain(int a, int b)",),
    3: ("static int plain(int a, int b)", "auto f = [&](int x)"),
    4: ("static int plain(int a, int b)",),
    5: ("static int plain(int a, int b)",),
    6: ("struct base",),
    7: ("struct base", "base(int a)"),
    8: ("struct base",),
    9: ("struct base", "virtual void run() override"),
    10: ("template <typename T> class typed", "void inside()"),
    11: (),
    12: ("void last()",),
}


def test_every_numbered_line_of_cpp() -> None:
    content = split(CODE.encode())
    marks = {
        int(line.partition(b"// ")[2].partition(b":")[0]): number
        for number, line in enumerate(content)
        if b"// " in line
    }
    found = chains(content, marks.values(), "cpp")
    assert {mark: found[number] for mark, number in marks.items()} == EXPECTED


def test_python_by_indentation() -> None:
    text = """class A(B):
    x = 1
    def one(self):
        if x:
            return 1

        return 2

    async def two(self): return 3
y = 2
def three(
    a,
):
    return a
"""
    content = split(text.encode())
    found = chains(content, range(len(content)), "python")
    assert found[1] == ("class A(B)",)
    assert found[4] == ("class A(B)", "def one(self)")
    assert found[5] == found[6] == ("class A(B)", "def one(self)")
    assert found[9] == ()


def test_other_languages_have_no_functions_that_we_know() -> None:
    assert chains(split(b"void f() {\n  x\n"), [1], None) == {1: ()}


def test_unbalanced_text_ends_in_no_error() -> None:
    for text in (b"}}}}", b"{{{{", b"#endif\n#else\n", b'"' * 9, b"'{"):
        chains(split(text), [0, 1], "cpp")


def test_a_choice_in_an_attribute_is_no_initialiser() -> None:
    head = "__global__ void __launch_bounds__((size() < n ? size() : n) * 4, 2) kernel(float * x)"
    text = f"{head} {{\n    x[0] = 1;\n}}\n".encode()
    assert chains(text.splitlines(keepends=True), [1], "cpp")[1] == (head,)
