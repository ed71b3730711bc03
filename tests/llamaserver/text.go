//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// secret is a word of every prompt that may stand on no page and in no metric.
const secret = "Quillfeather"

// diary is a text of so many words that nothing else begins like; models go on with it as it is.
func diary(who string, seed uint64, words int) string {
	pick := rand.New(rand.NewPCG(seed, 17))
	one := func(of ...string) string { return of[pick.IntN(len(of))] }
	var b strings.Builder
	fmt.Fprintf(&b, "The diary of %s %s, keeper of the lighthouse.\n", who, secret)
	for n, day := 8, 1; n < words; day++ {
		line := fmt.Sprintf("Day %d: the wind came from the %s, I saw %d %s, and the %s %s.\n", day,
			one("north", "south", "east", "west"), 2+pick.IntN(30), one("boats", "gulls", "seals", "ships", "whales"),
			one("lamp", "bell", "door", "boat", "dog"), one("was quiet", "needed oil", "was painted green", "broke again", "made a noise"))
		b.WriteString(line)
		n += len(strings.Fields(line))
	}
	return b.String()
}

// song is a request whose answer leaves no doubt: a song of so many words that stands there twice, and begins for the third time. Where two
// tokens are as likely, the order of sums decides, which is another one for each way to cut a prompt into batches; also in a server alone.
func song(seed uint64, words int) (prompt, answer string) {
	pick := rand.New(rand.NewPCG(seed, 4))
	list := strings.Fields(lists[seed%uint64(len(lists))]) // no word twice, in a song nor in the one before
	pick.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	line := list[:min(words, len(list))]
	all := strings.Join(line, " ")
	prompt = fmt.Sprintf("\nThe song: %s.\nThe song again: %s.\nThe song again: %s", all, all, strings.Join(line[:3], " "))
	return prompt, strings.Join(line[3:], " ")
}

var lists = []string{
	"river stone candle winter garden silver bridge morning apple window thunder feather harbour lantern meadow copper violin basket summer forest orange mirror castle pepper",
	"bread cloud table yellow horse number doctor island pencil family ocean market button kitchen planet rabbit carpet music paper sugar tiger uncle valley wagon",
	"chair purple dragon letter engine finger hammer jacket ladder monkey needle office parrot queen ribbon saddle tunnel village whistle zebra cotton desert eagle farmer",
}
