// What llama.cpp's programs have and this one does not. A flag that changes no answer is accepted instead, with a note:
// flag_rows_habit.cc.

#include "flag_rows.h"

namespace tessera {
namespace {

constexpr std::string_view kNoAdapters =
    "adapters are not applied to a loaded model; merge it into the model's file and give that with -m FILE";
constexpr std::string_view kNoMedia = "images and sound are not read, text alone; leave it out";
constexpr std::string_view kNoTools = "the server calls no tools and forwards nothing; clients run what a model calls";
constexpr std::string_view kAllOrigins = "web pages of all origins may ask; --api-key keeps those out that lack a key";

constexpr ForeignFlag kFlags[] = {
    // ---- models
    {"-hf -hfr --hf-repo -hff --hf-file -hft --hf-token -mu --model-url -dr --docker-repo", true, kNoNetwork},
    {"-cl --cache-list", false, "files are not downloaded, and none are kept; give them with -m FILE"},
    {"--lora --lora-scaled", true, kNoAdapters},
    {"--lora-init-without-apply", false, kNoAdapters},
    {"--control-vector --control-vector-scaled --control-vector-layer-range", true,
     "control vectors are not added to a model; leave it out"},
    {"--check-tensors", false,
     "weights are not searched for values that are no numbers; tessera doctor -m FILE says whether a file is whole, "
     "and sha256sum whether it is the right one"},
    {"--models-dir --models-preset", true,
     "models are named on the command line: --model NAME=FILE, as many as wanted"},
    {"--models-autoload --no-models-autoload", false, "a model is loaded when a request names it; leave it out"},
    {"--sleep-idle-seconds", true,
     "a model stays loaded until another needs its room; name several with --model NAME=FILE, and see --models-max"},

    // ---- positions
    {"--yarn-ext-factor --yarn-beta-slow --yarn-beta-fast", true,
     "YaRN is computed with the paper's numbers, as most models want it (--yarn-ext-factor 1 --yarn-beta-slow 1 "
     "--yarn-beta-fast 32); leave it out"},
    {"-gan --grp-attn-n -gaw --grp-attn-w", true,
     "no attention is grouped; for contexts longer than the model's use --rope-scaling yarn --rope-scale N"},

    // ---- media
    {"-mm --mmproj -mmu --mmproj-url --image --audio --image-min-tokens --image-max-tokens --media-path", true,
     kNoMedia},
    {"--mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload --no-mmproj-offload", false, kNoMedia},

    // ---- speculative decoding
    {"-md --model-draft -hfd -hfrd --hf-repo-draft --draft --draft-n --draft-max --draft-min --draft-n-min "
     "--draft-p-min --draft-p-split -cd --ctx-size-draft -devd --device-draft -ngld --gpu-layers-draft "
     "--n-gpu-layers-draft -td --threads-draft -tbd --threads-batch-draft -ctkd --cache-type-k-draft -ctvd "
     "--cache-type-v-draft --spec-type -lcs --lookup-cache-static -lcd --lookup-cache-dynamic",
     true,
     "there is no speculative decoding, which changes the speed alone; leave it out, and the answers are the same"},

    // ---- chat and answers
    {"--rerank --reranking", false,
     "there is no reranking; /v1/embeddings, with --embeddings, gives vectors to compare"},
    {"--props", false,
     "GET /props is always answered, and nothing can be changed there; settings are flags, and those of a request"},
    {"--api-prefix", true, "routes begin at /; put a proxy before it that takes the prefix away"},
    {"--cors-origins --cors-methods --cors-headers", true, kAllOrigins},
    {"--cors-credentials --no-cors-credentials", false, kAllOrigins},
    {"--ssl-key-file --ssl-cert-file", true, "the server speaks plain HTTP; put a proxy that does TLS before it"},
    {"--tools", true, kNoTools},
    {"--webui-mcp-proxy --no-webui-mcp-proxy", false, kNoTools},
    {"--webui-config --webui-config-file", true,
     "the page keeps its settings in the browser; --path FOLDER serves another page"},

    {"-i --interactive -if --interactive-first", false, "run answers once, and chat goes on; leave it out"},
    {"-sp --special", false,
     "tokens that steer a model are not printed; tessera tokenize --detokenize shows any token's text"},
    {"--in-prefix --in-suffix", true, "chat templates wrap what is said; --chat-template-file gives another one"},
    {"--in-prefix-bos", false, "chat templates wrap what is said; --chat-template-file gives another one"},
    {"-sysf --system-prompt-file", true, "give the file's text: -sys \"$(cat FILE)\""},
    {"-bf --binary-file", true, "-f FILE reads a file as it is, without a newline at its end"},
    {"-mli --multiline-input", false, "leave it out; in chat \\ at the end of a line continues it"},
    {"--verbose-prompt", false, "tessera tokenize shows the tokens of a text"},
    {"--print-token-count", true, "tokens are counted at the end, on standard error; leave it out"},
    {"--license", false, "the license stands in the file LICENSE; leave it out"},
    {"--tfs", true, "there is no tail-free sampling; --min-p cuts the tail of unlikely tokens"},

    // ---- measuring
    {"--ppl-stride", true, "chunks of --ctx-size do not overlap; leave it out"},
    {"--ppl-output-type", true, "leave it out; --json prints the perplexity after each chunk"},
    {"--hellaswag --winogrande --multiple-choice --kl-divergence", false,
     "perplexity is all that is measured; tessera logits writes the logits of texts, to compare"},
    {"--hellaswag-tasks --winogrande-tasks --multiple-choice-tasks --kl-divergence-base --save-all-logits", true,
     "perplexity is all that is measured; tessera logits writes the logits of texts, to compare"},
    {"-oe --output-err", true, "results go to standard output alone; --output says how"},
    {"--delay", true, "tests follow each other without a pause; call bench once for each, with sleep between"},
    {"-embd", true, "bench times prompts and generation; leave it out"},

    // ---- the machine
    {"--list-devices", false, "tessera devices lists them"},
    {"--rpc", true, "devices are those of this machine; tessera devices lists them"},
    {"--prio --prio-batch", true, "threads run as the system schedules them; start the program under nice or chrt"},
    {"-Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch", true,
     "--cpu-mask, --cpu-range and --cpu-strict hold for prompts and generation"},
    {"--log-file", true, "messages go to standard error; write 2> FILE"},
};

constexpr std::string_view kFilesAreNamed =
    "no models are kept; one is a file that -m FILE names, and tessera inspect -m FILE shows what it holds";
constexpr std::string_view kOneProcess =
    "a model is loaded by the command that uses it and gone when that ends; GET /v1/models of tessera serve lists its "
    "own";

constexpr ForeignFlag kCommands[] = {
    {"pull push search", false, kNoNetwork},
    {"list ls show rm cp create", false, kFilesAreNamed},
    {"ps stop", false, kOneProcess},
    {"quantize llama-quantize convert", false,
     "files are used as they are; make another format of one with the program that made it"},
    {"cli main llama-cli", false, "tessera run answers one prompt, and tessera chat goes on"},
    {"server llama-server start", false, "use tessera serve"},
    {"llama-bench", false, "use tessera bench"},
    {"llama-batched-bench", false, "use tessera batched-bench"},
    {"llama-perplexity", false, "use tessera perplexity"},
    {"llama-tokenize", false, "use tessera tokenize"},
    {"llama-embedding embed", false, "use tessera embedding"},
    {"llama-gguf", false, "use tessera inspect"},
};

}  // namespace

std::span<const ForeignFlag> foreign_commands() {
  return kCommands;
}

std::span<const ForeignFlag> foreign_flags() {
  return kFlags;
}

}  // namespace tessera
