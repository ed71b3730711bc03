package llamaserver

import (
	"encoding/json"
	"maps"
	"testing"
)

func TestScalesOfRequests(t *testing.T) {
	for body, want := range map[string]map[int]float32{
		`[{"id":0,"scale":0.5},{"id":1,"scale":2}]`: {0: 0.5, 1: 2},
		`[{"id":2,"scale":1}]`:                      nil, // the server has no such adapter
		`[{"id":0,"scale":1},{"id":0,"scale":0}]`:   {0: 0},
		`[]`:                             {},
		`[{"id":0,"scale":1,"Scale":0}]`: nil, // the server knows no Scale
		`[{"scale":1}]`:                  nil,
		`[{"id":0}]`:                     nil,
		`[{"id":0,"scale":null}]`:        nil,
		`[{"id":1.5,"scale":1}]`:         nil,
		`{"id":0,"scale":1}`:             nil,
		`[{"id":0,"scale":1e999}]`:       nil,
		`[{"ID":0,"id":1,"scale":1}]`:    nil,
	} {
		got, err := chosenScales(json.RawMessage(body), map[int]float32{0: 1, 1: 1})
		if !maps.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %v %v, expected %v", body, got, err, want)
		}
	}
}
