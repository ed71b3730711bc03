package request

// Pass says why a request goes to the server as it is.
type Pass string

func (p Pass) Error() string { return string(p) }

// Reasons of requests that are not looked up. figures.Words has them for people.
const (
	PassMedia    Pass = "media"
	PassMany     Pass = "several_answers"
	PassOff      Pass = "lookup_off"
	PassSlot     Pass = "slot_chosen"
	PassReuse    Pass = "rows_shifted"
	PassStore    Pass = "no_store"
	PassModel    Pass = "unknown_model"
	PassHashing  Pass = "model_being_read"
	PassUnhashed Pass = "model_being_hashed" // its file is read for the first time
	PassLoading  Pass = "server_loading"     // the server says so, or does not answer yet
	PassArgs     Pass = "server_arguments"
	PassRows     Pass = "other_rows"
	PassFiles    Pass = "files_changed"
	PassSlots    Pass = "slots_not_saved"
	PassDiffers  Pass = "rendered_otherwise"
	PassBody     Pass = "not_understood"
	PassLarge    Pass = "body_too_large"
	PassLong     Pass = "too_long" // for the context of a slot
	PassAdapters Pass = "adapters"
	PassEndpoint Pass = "unknown_endpoint"
	PassServer   Pass = "server_failed"
	PassKey      Pass = "api_key"
)
