package llamaserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Arguments are what a llama-server was asked to do: its command line and its environment, as far as a front must know them.
type Arguments struct {
	Program string
	Host    string // where the user wants the server; empty: 127.0.0.1
	Port    int    // 0: llama-server's own default
	Model   string // path of the model's file, if it was named
	Slots   string // the folder of --slot-save-path, if the user asked for one
	Prefix  string // of all paths (--api-prefix), without the last slash
	APIKey  string // one that the server accepts
	Cert    string // file of the certificate, where the server speaks TLS
	Key     string // file of its key
	// Rows names all arguments that change what rows the model computes, and those that are not known here. Two servers with one model
	// and different Rows share nothing.
	Rows string
	// Adapters are the files of LoRA adapters.
	Adapters []string
	// Refused says why nothing may be cached with these arguments. Empty: nothing stands in the way.
	Refused string
	// KeepsIdle says that idle slots keep their contents when another slot begins to work.
	KeepsIdle bool
	// Shifts says that a prompt which fills the context goes on with shifted rows, which are approximations.
	Shifts bool
	// Sleep is after how long without work the server gives up its model, and loads it again when it is asked; 0: never.
	Sleep time.Duration
	// Router says that the server starts a server for each model.
	Router bool

	args, env []string                          // without host, port and slot folder
	settings  []string                          // of env, what is llama-server's
	idle      struct{ keep, apart, noRAM bool } // why idle slots keep their contents: of two flags the last counts
}

// DefaultPort is where llama-server listens if nothing else is said.
const DefaultPort = 8080

// How arguments and variables of the environment bear on a front.
var (
	hostFlag  = []string{"--host", "LLAMA_ARG_HOST"}
	portFlag  = []string{"--port", "LLAMA_ARG_PORT"}
	slotsFlag = []string{"--slot-save-path", "LLAMA_ARG_SLOT_SAVE_PATH"}

	// harmless arguments change nothing of what a row is: where and how fast it is computed, what is sampled, who may ask, what is logged.
	harmless = strings.Fields(`
		-t --threads -tb --threads-batch -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb --cpu-range-batch
		--cpu-strict-batch --prio-batch --poll-batch -c --ctx-size -n --predict --n-predict -b --batch-size -ub --ubatch-size --keep -fa
		--flash-attn --perf --no-perf -e --escape --no-escape -kvo --kv-offload -nkvo --no-kv-offload --repack -nr --no-repack --no-host -ctk --cache-type-k
		-ctv --cache-type-v -dt --defrag-thold --rpc -lm --load-mode -lzm --lazy-mode --mlock --mmap --no-mmap --numa -dev --device -ot --override-tensor -cmoe
		--cpu-moe -ncmoe --n-cpu-moe --moe-cache-mib -ncffn --n-cpu-ffn -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -mg
		--main-gpu -fit --fit -fitt --fit-target -fitc --fit-ctx --check-tensors --op-offload --no-op-offload -m --model -mu --model-url -dr
		--docker-repo -hf -hfr --hf-repo -hff --hf-file -hft --hf-token --log-disable --log-file --log-jsonl --no-log-jsonl --log-colors -v --verbose
		--log-verbose --offline -lv --verbosity --log-verbosity --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --samplers -s
		--seed --sampler-seq --sampling-seq --ignore-eos --temp --temperature --top-k --top-p --min-p --top-nsigma --top-n-sigma --xtc-probability
		--xtc-threshold --typical --typical-p --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty --dry-multiplier
		--dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range
		--dynatemp-exp --mirostat --mirostat-lr --mirostat-ent -l --logit-bias --grammar --grammar-file -j --json-schema -jf
		--json-schema-file -bs --backend-sampling --spec-type --kv-unified-per-slot -ctxcp --ctx-checkpoints --swa-checkpoints -cms
		--checkpoint-min-step -cram --cache-ram -kvu --kv-unified -no-kvu --no-kv-unified --cache-idle-slots --no-cache-idle-slots --context-shift
		--no-context-shift -r --reverse-prompt -sp --special --warmup --no-warmup --spm-infill -np --parallel -cb --cont-batching -nocb
		--no-cont-batching -mm --mmproj -mmu --mmproj-url --mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload --no-mmproj-offload -a --alias
		--tags --host --port --reuse-port --path --cors-origins --cors-methods --cors-headers --cors-credentials --no-cors-credentials
		--api-prefix --ui-config --webui-config --ui-config-file --webui-config-file --ui-mcp-proxy --no-ui-mcp-proxy --ui --webui --no-ui --no-webui --api-key
		--api-key-file --ssl-key-file --ssl-cert-file --chat-template-kwargs -to --timeout --sse-ping-interval --threads-http --cache-prompt
		--metrics --props --slots --slot-save-path --media-path --models-dir --models-preset --models-max --models-autoload
		--no-models-autoload --jinja --no-jinja --reasoning-format -rea --reasoning --reasoning-effort --reasoning-budget
		--reasoning-budget-message --reasoning-preserve --no-reasoning-preserve --chat-template --chat-template-file --skip-chat-parsing
		--no-skip-chat-parsing --prefill-assistant --no-prefill-assistant -sps --slot-prompt-similarity --lora-init-without-apply --embd-normalize
		--image-min-tokens --image-max-tokens --mtmd-batch-max-tokens -mmdev --mmproj-device --video-fps --video-timestamp-interval --video-ffmpeg-dir --tools
		--tools-runtime -ag --agent -no-ag --no-agent --mcp-servers-config --mcp-servers-json --webui-mcp-proxy --no-webui-mcp-proxy -td -tbd -Cd -Crd -Cbd -Crbd
		-ctkd -ctvd -devd -ngld -otd -cmoed -ncmoed -lcs -lcd
		--sleep-idle-seconds --log-prompts-dir --lora --lora-scaled --version --help -h
		LLAMA_API_KEY HF_TOKEN LLAMA_ARG_THREADS LLAMA_ARG_THREADS_BATCH LLAMA_ARG_CTX_SIZE LLAMA_ARG_N_PREDICT LLAMA_ARG_BATCH LLAMA_ARG_UBATCH
		LLAMA_ARG_FLASH_ATTN LLAMA_ARG_NO_PERF LLAMA_ARG_PERF LLAMA_ARG_KV_OFFLOAD LLAMA_ARG_NO_KV_OFFLOAD LLAMA_ARG_REPACK LLAMA_ARG_NO_REPACK LLAMA_ARG_CACHE_TYPE_K
		LLAMA_ARG_CACHE_TYPE_V LLAMA_ARG_DEFRAG_THOLD LLAMA_ARG_N_PARALLEL LLAMA_ARG_MLOCK LLAMA_ARG_NO_MMAP LLAMA_ARG_MMAP LLAMA_ARG_NUMA
		LLAMA_ARG_DEVICE LLAMA_ARG_OVERRIDE_TENSOR LLAMA_ARG_CPU_MOE LLAMA_ARG_N_CPU_MOE LLAMA_ARG_N_GPU_LAYERS LLAMA_ARG_SPLIT_MODE
		LLAMA_ARG_TENSOR_SPLIT LLAMA_ARG_MAIN_GPU LLAMA_ARG_FIT LLAMA_ARG_FIT_TARGET LLAMA_ARG_FIT_CTX LLAMA_ARG_MODEL LLAMA_ARG_MODEL_URL
		LLAMA_ARG_DOCKER_REPO LLAMA_ARG_HF_REPO LLAMA_ARG_HF_FILE LLAMA_ARG_LOG_FILE LLAMA_ARG_LOG_COLORS LLAMA_ARG_LOG_VERBOSITY LLAMA_ARG_LOG_PREFIX
		LLAMA_ARG_LOG_TIMESTAMPS LLAMA_ARG_OFFLINE LLAMA_ARG_CTX_CHECKPOINTS LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT LLAMA_ARG_CACHE_RAM LLAMA_ARG_KV_UNIFIED
		LLAMA_ARG_KV_UNIFIED_PER_SLOT LLAMA_ARG_CACHE_IDLE_SLOTS LLAMA_ARG_CONTEXT_SHIFT LLAMA_ARG_CONT_BATCHING LLAMA_ARG_MMPROJ LLAMA_ARG_MMPROJ_URL
		LLAMA_ARG_MMPROJ_AUTO LLAMA_ARG_MMPROJ_OFFLOAD LLAMA_ARG_ALIAS LLAMA_ARG_TAGS LLAMA_ARG_HOST LLAMA_ARG_PORT LLAMA_ARG_REUSE_PORT LLAMA_ARG_STATIC_PATH
		LLAMA_ARG_API_PREFIX LLAMA_ARG_UI LLAMA_ARG_WEBUI LLAMA_ARG_SSL_KEY_FILE LLAMA_ARG_SSL_CERT_FILE LLAMA_ARG_CHAT_TEMPLATE_KWARGS LLAMA_ARG_TIMEOUT
		LLAMA_ARG_THREADS_HTTP LLAMA_ARG_CACHE_PROMPT LLAMA_ARG_ENDPOINT_METRICS LLAMA_ARG_ENDPOINT_PROPS LLAMA_ARG_ENDPOINT_SLOTS
		LLAMA_ARG_SLOT_SAVE_PATH LLAMA_ARG_MODELS_DIR LLAMA_ARG_MODELS_PRESET LLAMA_ARG_MODELS_MAX LLAMA_ARG_MODELS_AUTOLOAD LLAMA_ARG_JINJA LLAMA_ARG_THINK
		LLAMA_ARG_API_KEY_FILE LLAMA_ARG_BACKEND_SAMPLING LLAMA_ARG_CORS_CREDENTIALS LLAMA_ARG_CORS_HEADERS LLAMA_ARG_CORS_METHODS LLAMA_ARG_CORS_ORIGINS
		LLAMA_ARG_FREQUENCY_PENALTY LLAMA_ARG_LAZY_MODE LLAMA_ARG_LOAD_MODE LLAMA_ARG_LOG_JSONL LLAMA_ARG_MIN_P LLAMA_ARG_MOE_CACHE_MIB LLAMA_ARG_NO_HOST
		LLAMA_ARG_N_CPU_FFN LLAMA_ARG_PRESENCE_PENALTY LLAMA_ARG_REASONING_EFFORT LLAMA_ARG_REASONING_PRESERVE LLAMA_ARG_REPEAT_PENALTY LLAMA_ARG_RPC
		LLAMA_ARG_AGENT LLAMA_ARG_TOOLS LLAMA_ARG_TOOLS_RUNTIME LLAMA_ARG_IMAGE_MIN_TOKENS LLAMA_ARG_IMAGE_MAX_TOKENS LLAMA_ARG_MTMD_BATCH_MAX_TOKENS
		LLAMA_ARG_MCP_SERVERS_CONFIG LLAMA_ARG_MCP_SERVERS_JSON LLAMA_ARG_VIDEO_FPS LLAMA_ARG_VIDEO_FFMPEG_DIR LLAMA_ARG_VIDEO_TIMESTAMP_INTERVAL
		LLAMA_ARG_SKIP_CHAT_PARSING LLAMA_ARG_SPEC_TYPE LLAMA_ARG_SSE_PING_INTERVAL LLAMA_ARG_TEMPERATURE LLAMA_ARG_THINK_BUDGET_MESSAGE LLAMA_ARG_TOP_K
		LLAMA_ARG_TOP_P LLAMA_ARG_UI_CONFIG LLAMA_ARG_UI_CONFIG_FILE LLAMA_ARG_UI_MCP_PROXY
		LLAMA_ARG_REASONING LLAMA_ARG_REASONING_FORMAT LLAMA_ARG_THINK_BUDGET LLAMA_ARG_CHAT_TEMPLATE LLAMA_ARG_CHAT_TEMPLATE_FILE LLAMA_ARG_PREFILL_ASSISTANT`)
)

// ParseArguments reads how a llama-server is to be started: its program and arguments, and the environment that it would get.
func ParseArguments(command, environ []string) (*Arguments, error) {
	if len(command) == 0 {
		return nil, errors.New("no server is named: dormouse serve -- llama-server -m model.gguf")
	}
	if strings.HasSuffix(command[0], ".gguf") {
		return nil, fmt.Errorf("%s is a model, expected a server: dormouse serve -- llama-server -m %s", command[0], command[0])
	}
	a := &Arguments{Program: command[0]}
	var said []argument
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		ours := strings.HasPrefix(name, "LLAMA_ARG_") || name == "LLAMA_API_KEY"
		if ours {
			said = append(said, argument{name, []string{value}})
		}
		if !ours || !a.replaced(name) {
			a.env = append(a.env, e)
			if ours {
				a.settings = append(a.settings, e)
			}
		}
	}
	for rest := command[1:]; len(rest) > 0; {
		f, n := next(rest)
		said = append(said, f)
		if !a.replaced(f.name) {
			a.args = append(a.args, rest[:n]...)
		}
		rest = rest[n:]
	}
	var rows []string
	for _, f := range said { // the environment first: a flag overrides it
		if err := a.take(f); err != nil {
			return nil, err
		}
		if changesRows(f) {
			rows = append(rows, strings.TrimSpace(f.name+" "+strings.Join(f.values, " ")))
		}
	}
	a.Refused = refused(said)
	a.KeepsIdle = a.idle.keep || a.idle.apart || a.idle.noRAM
	slices.Sort(a.settings)
	slices.Sort(rows)
	a.Rows = strings.Join(slices.Compact(rows), " ")
	if a.Slots != "" {
		a.args = append(a.args, slotsFlag[0], a.Slots)
	}
	a.Router = a.Router || a.Model == "" && !slices.ContainsFunc(said, namesModel)
	return a, nil
}

// namesModel reports whether an argument says which model to load, other than by a file.
func namesModel(f argument) bool {
	switch f.name {
	case "-mu", "--model-url", "LLAMA_ARG_MODEL_URL", "-dr", "--docker-repo", "LLAMA_ARG_DOCKER_REPO":
		return true
	}
	return strings.Contains(f.name, "hf") || strings.Contains(f.name, "HF_REPO") || isPreset(f.name) && f.name != "--spec-default"
}

// isPreset reports whether a flag stands for a model of a hub with further arguments.
func isPreset(name string) bool {
	return strings.HasPrefix(name, "--") && (strings.HasSuffix(name, "-default") || strings.HasSuffix(name, "-spec"))
}

// argument is a flag, or a variable of the environment, with what follows it.
type argument struct {
	name   string
	values []string
}

func (f argument) value() string { return strings.Join(f.values, " ") }

// next is the first argument, and of how many words it is made: whatever follows a flag and is none itself belongs to it.
func next(rest []string) (argument, int) {
	n := 1
	for n < len(rest) && !isFlag(rest[n]) {
		n++
	}
	name := rest[0]
	if strings.HasPrefix(name, "--") { // llama-server takes --swa_full for --swa-full
		name = strings.ReplaceAll(name, "_", "-")
	}
	return argument{name, rest[1:n]}, n
}

// isFlag tells a flag from a negative number, and from the - that stands for standard input.
func isFlag(s string) bool {
	if len(s) < 2 || s[0] != '-' {
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err != nil
}

// replaced reports whether the front gives this argument itself.
func (a *Arguments) replaced(name string) bool {
	return slices.Contains(hostFlag, name) || slices.Contains(portFlag, name) || slices.Contains(slotsFlag, name)
}

func (a *Arguments) take(f argument) (err error) {
	switch f.name {
	case "--context-shift", "LLAMA_ARG_CONTEXT_SHIFT":
		a.Shifts = !off(f)
	case "--no-context-shift", "LLAMA_ARG_NO_CONTEXT_SHIFT":
		a.Shifts = false
	case "--host", "LLAMA_ARG_HOST":
		a.Host = f.value()
		if strings.Contains(a.Host, ",") {
			return fmt.Errorf("%s %s: the front listens on one address", f.name, a.Host)
		}
	case "--port", "LLAMA_ARG_PORT":
		if a.Port, err = strconv.Atoi(f.value()); err != nil || a.Port < 0 || a.Port > 65535 {
			return fmt.Errorf("%s %q: expected a port of 0 to 65535", f.name, f.value())
		}
	case "--slot-save-path", "LLAMA_ARG_SLOT_SAVE_PATH":
		a.Slots = f.value()
	case "-m", "--model", "LLAMA_ARG_MODEL":
		a.Model = f.value()
	case "--api-prefix", "LLAMA_ARG_API_PREFIX":
		a.Prefix = strings.TrimSuffix(f.value(), "/")
	case "--api-key", "LLAMA_API_KEY":
		a.APIKey, _, _ = strings.Cut(f.value(), ",")
	case "--api-key-file", "LLAMA_ARG_API_KEY_FILE":
		if a.APIKey, err = firstKey(f.value()); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	case "--ssl-cert-file", "LLAMA_ARG_SSL_CERT_FILE":
		a.Cert = f.value()
	case "--ssl-key-file", "LLAMA_ARG_SSL_KEY_FILE":
		a.Key = f.value()
	case "--lora":
		a.Adapters = append(a.Adapters, strings.Split(f.value(), ",")...)
	case "--lora-scaled":
		for _, one := range strings.Split(f.value(), ",") {
			file, _, _ := strings.Cut(one, ":")
			a.Adapters = append(a.Adapters, file)
		}
	case "--cache-idle-slots", "LLAMA_ARG_CACHE_IDLE_SLOTS":
		a.idle.keep = off(f)
	case "--no-cache-idle-slots", "LLAMA_ARG_NO_CACHE_IDLE_SLOTS":
		a.idle.keep = true
	case "-kvu", "--kv-unified", "LLAMA_ARG_KV_UNIFIED":
		a.idle.apart = off(f)
	case "-no-kvu", "--no-kv-unified", "LLAMA_ARG_NO_KV_UNIFIED":
		a.idle.apart = true
	case "-cram", "--cache-ram", "LLAMA_ARG_CACHE_RAM":
		a.idle.noRAM = f.value() == "0"
	case "--sleep-idle-seconds":
		if n, err := strconv.Atoi(f.value()); err == nil {
			a.Sleep = time.Duration(max(0, n)) * time.Second
		}
	case "--models-dir", "--models-preset", "LLAMA_ARG_MODELS_DIR", "LLAMA_ARG_MODELS_PRESET":
		a.Router = true
	}
	return nil
}

func firstKey(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line, nil
		}
	}
	return "", fmt.Errorf("%s has no key", file)
}

// Listen is the address on which the user expects the server: host and port, or, as for llama-server, the path of a socket file that ends in .sock.
func (a *Arguments) Listen() string {
	host, port := a.Host, a.Port
	if strings.HasSuffix(host, ".sock") {
		return host
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if port == 0 {
		port = DefaultPort
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port))
}

// withoutRAM has the server keep no prompts in memory beside those of its slots. It is said in the environment: an older release, which has no such cache, knows
// no such flag. It gives what was asked for instead.
func (a *Arguments) withoutRAM() (asked []string) {
	const name = "LLAMA_ARG_CACHE_RAM"
	var args []string
	for rest := a.args; len(rest) > 0; {
		f, n := next(rest)
		if f.name == "-cram" || f.name == "--cache-ram" {
			asked = append(asked, rest[:n]...)
		} else {
			args = append(args, rest[:n]...)
		}
		rest = rest[n:]
	}
	other := func(e string) bool { return strings.HasPrefix(e, name+"=") }
	a.args = args
	a.env = append(slices.DeleteFunc(slices.Clone(a.env), other), name+"=0")
	a.settings = append(slices.DeleteFunc(slices.Clone(a.settings), other), name+"=0")
	slices.Sort(a.settings)
	a.idle.noRAM, a.KeepsIdle = true, true
	return asked
}

// command is how the server is started behind a front.
func (a *Arguments) command(port int, slots string) []string {
	out := append([]string{a.Program}, a.args...)
	out = append(out, "--host", "127.0.0.1", "--port", strconv.Itoa(port))
	if a.Slots == "" && slots != "" {
		out = append(out, slotsFlag[0], slots+string(filepath.Separator))
	}
	return out
}

// startsWithoutRAM has the server be started without its own cache in memory, and says so.
func (a *Arguments) startsWithoutRAM(log *slog.Logger) {
	if asked := a.withoutRAM(); len(asked) > 1 && asked[1] != "0" {
		log.Warn("the server is started without its cache in memory, which knows no API keys (--scope-by-key)", "instead of", strings.Join(asked, " "))
		return
	}
	log.Info("the server is started without its cache in memory (--cache-ram 0), which knows no API keys (--scope-by-key)")
}
