// Constant evaluation that keeps a compiler busy for a minute or more, in little memory.
constexpr unsigned long spin(unsigned long rounds) {
    unsigned long state = 1;
    for (unsigned long i = 0; i < rounds; ++i) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
    }
    return state;
}

template <unsigned long number> struct Slow {
    static constexpr unsigned long value = spin(250000 + number) + Slow<number - 1>::value;
};
template <> struct Slow<0> {
    static constexpr unsigned long value = 0;
};
static_assert(Slow<400>::value != 1, "evaluated at compile time");
