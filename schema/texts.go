package schema

// Texts keeps texts that come again and again, such as topics, so that no memory
// is taken for each time. The zero Texts is ready; it is not safe for concurrent
// use.
type Texts struct{ known map[string]string }

const (
	knownTexts = 512 // what does not come again must not pile up
	knownText  = 256 // bytes of a text that is kept
)

// Get is the text in b, in the form that form gives it; nil: as it is.
func (t *Texts) Get(b []byte, form func(string) string) string {
	if text, ok := t.known[string(b)]; ok {
		return text
	}
	raw := string(b)
	text := raw
	if form != nil {
		text = form(raw)
	}
	if len(raw) > knownText {
		return text
	}
	if t.known == nil || len(t.known) >= knownTexts {
		t.known = make(map[string]string)
	}
	t.known[raw] = text
	return text
}
