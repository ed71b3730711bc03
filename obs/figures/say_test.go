package figures

import (
	"encoding/json"
	"testing"
	"time"
)

func TestWhatIsSaid(t *testing.T) {
	for got, want := range map[string]string{
		Comma(0):                "0",
		Comma(999):              "999",
		Comma(7204):             "7,204",
		Comma(-1234567):         "-1,234,567",
		Comma(int64(100_000)):   "100,000",
		Share(0, 0):             "–",
		Share(1, 1000):          "<1 %",
		Share(999, 1000):        ">99 %",
		Share(500, 1000):        "50 %",
		Ago(90 * time.Second):   "90 s",
		Ago(3 * time.Hour):      "3 h",
		Ago(100 * time.Minute):  "100 min",
		Ago(9 * 24 * time.Hour): "9 days",
		(&Parted{Token: 312, Part: "tools", Common: 312}).Says(7204):                           "parted at token 312 of 7,204, in the tools",
		(&Parted{Token: 1312, Part: "message 3", Common: 1312, Age: 2 * time.Hour}).Says(7204): "parted at token 1,312 of 7,204, in message 3, from a prompt of 2 h before",
		(&Parted{Token: 40, Part: "template", Common: 40}).Says(0):                             "parted at token 40, in the template's own text",
		(&Parted{Token: 40, Common: 40}).Says(50):                                              "parted at token 40 of 50",
		(&Parted{Token: 5, Part: "system prompt", Common: 5}).Says(50):                         "has only its first 5 tokens in common with any prompt that is there",
		(&Parted{Advice: "its date changes: set it"}).Advise():                                 "Its date changes: set it",
		(&Parted{}).Advise(): "",
		(&Request{Reason: "nothing_stored", Unused: 1200}).Why():                                "nothing stored begins like this prompt; 1,200 tokens were restored and computed again",
		(&Request{Client: "codex", Endpoint: "/v1/responses"}).Asks():                           "codex at /v1/responses",
		(&Request{Endpoint: "/v1/responses"}).Asks():                                            "/v1/responses",
		(&Front{Requests: map[Kind]int64{{Hit, "complete"}: 1204, {Pass, "media"}: 2}}).Ended(): "1,204 from the store, 2 passed through",
	} {
		if got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
	if (&Request{Reused: 90, Computed: 10, Asked: 100}).Short() || !(&Request{Reused: 89, Computed: 11, Asked: 100}).Short() || !(&Request{Asked: 10}).Short() {
		t.Error("what is short")
	}
}

// In JSON outcomes are words, and come back.
func TestOutcomesInJSON(t *testing.T) {
	for _, o := range Outcomes {
		b, err := json.Marshal(Request{Outcome: o})
		var q Request
		if err := json.Unmarshal(b, &q); err != nil || q.Outcome != o {
			t.Errorf("%s: %v, %v", b, q.Outcome, err)
		}
		if err != nil || !json.Valid(b) || string(b) == "" {
			t.Errorf("%s, %v", b, err)
		}
	}
	var q Request
	if err := json.Unmarshal([]byte(`{"Outcome":"something of a later release"}`), &q); err != nil || q.Outcome != Pass {
		t.Errorf("%v, %v", q.Outcome, err)
	}
}
