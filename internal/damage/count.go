package damage

import "fmt"

// Count prints a number of things, of which there may be one.
func Count[N int | int64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
