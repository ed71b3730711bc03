package modelfile

import "testing"

// A number of a model's metadata is the same however a release, or a C library, writes it; other numbers are others.
func TestSpelled(t *testing.T) {
	for _, same := range [][]string{
		{"inf", "+Inf", "Inf", "infinity"},
		{"-inf", "-Inf"},
		{"nan", "-nan", "NaN"},
		{"0.000000", "-0.000000", "-0.0", "0.0", "1e-9"},
		{"0.000010", "1e-05", "1e-5", "1.0e-05", "0,000010", "9.99999974737875163555e-06"},
		{"1000000.000000", "1e+06", "1e6", "1000000.0"},
		{"340282346638528859811704183484516925440.000000", "3.4028234663852886e+38", "3.402823466e+38"},
		{"0.100000", "0.1", "0.10000000149011612"},
		{`a \"b\"`, `a "b"`, "a b\n"},
	} {
		for _, x := range same {
			if Spelled(x) != Spelled(same[0]) {
				t.Errorf("%q is %q, %q is %q", same[0], Spelled(same[0]), x, Spelled(x))
			}
		}
	}
	for _, x := range [][2]string{{"inf", "-inf"}, {"inf", "nan"}, {"0.000010", "0.000020"}, {"1,2", "12"}, {"1e-05", "1e-04"}, {"none", "nan"}, {"10000", "10001"}} {
		if Spelled(x[0]) == Spelled(x[1]) {
			t.Errorf("%q and %q are both %q", x[0], x[1], Spelled(x[0]))
		}
	}
}
