#include "bench_names.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

// Numbers of llama.cpp's llama_ftype; those between were given up.
constexpr std::pair<std::string_view, std::string_view> kFileTypes[] = {
    {"0", "all F32"},        {"1", "F16"},
    {"2", "Q4_0"},           {"3", "Q4_1"},
    {"7", "Q8_0"},           {"8", "Q5_0"},
    {"9", "Q5_1"},           {"10", "Q2_K - Medium"},
    {"11", "Q3_K - Small"},  {"12", "Q3_K - Medium"},
    {"13", "Q3_K - Large"},  {"14", "Q4_K - Small"},
    {"15", "Q4_K - Medium"}, {"16", "Q5_K - Small"},
    {"17", "Q5_K - Medium"}, {"18", "Q6_K"},
    {"19", "IQ2_XXS"},       {"20", "IQ2_XS"},
    {"21", "Q2_K - Small"},  {"22", "IQ3_XS"},
    {"23", "IQ3_XXS"},       {"24", "IQ1_S"},
    {"25", "IQ4_NL"},        {"26", "IQ3_S"},
    {"27", "IQ3_M"},         {"28", "IQ2_S"},
    {"29", "IQ2_M"},         {"30", "IQ4_XS"},
    {"31", "IQ1_M"},         {"32", "BF16"},
    {"36", "TQ1_0"},         {"37", "TQ2_0"},
    {"38", "MXFP4 MoE"},
};

}  // namespace

std::string_view file_type_name(std::string_view number) {
  const auto found = std::ranges::find(kFileTypes, number, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kFileTypes) ? std::string_view() : found->second;
}

}  // namespace tessera
