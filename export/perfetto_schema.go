package export

// A DebugAnnotation names itself and its type: seven bytes for a grade, fifteen for a distance. Most
// annotations of this timeline are therefore fields of one message, whose descriptor the file carries
// for Perfetto to read them with (Perfetto's docs: extensions of TrackEvent). The message is called
// debug, so that they are found as DebugAnnotations are: debug.<name>.

// Fields of Perfetto's descriptors (protos/perfetto/common/descriptor.proto, trace/extension_descriptor.proto).
const (
	descriptorSet = 1
	setFile       = 1

	fileName      = 1
	filePackage   = 2
	fileMessage   = 4
	fileEnum      = 5
	fileExtension = 7

	declaredName = 1 // of a message, an enum or a value of one
	messageField = 2
	enumValue    = 2
	valueNumber  = 2

	fieldName     = 1
	fieldExtendee = 2
	fieldNumber   = 3
	fieldLabel    = 4
	fieldType     = 5
	fieldTypeName = 6

	labelOptional = 1
	typeMessage   = 11
)

// eventNotes is the field of TrackEvent that holds the message, from the numbers that Perfetto leaves
// to extensions and does not hand out.
const eventNotes = 9900

const (
	schemaPackage = "stageline"
	notesType     = "." + schemaPackage + ".Notes"
	wordsName     = "Word"
	wordsType     = "." + schemaPackage + "." + wordsName
)

// descriptorFile is a file with some declarations.
func descriptorFile(declarations ...[]byte) []byte {
	f := appendText(nil, fileName, "stageline.proto")
	f = appendText(f, filePackage, schemaPackage)
	for _, d := range declarations {
		f = append(f, d...)
	}
	return f
}

func fieldDescriptor(name string, number uint64, kind uint64, typeName, extendee string) []byte {
	d := appendText(nil, fieldName, name)
	if extendee != "" {
		d = appendText(d, fieldExtendee, extendee)
	}
	d = appendUint(appendUint(d, fieldNumber, number), fieldLabel, labelOptional)
	d = appendUint(d, fieldType, kind)
	if typeName != "" {
		d = appendText(d, fieldTypeName, typeName)
	}
	return d
}

// noteMessage declares the message of the annotations that have a type, and the enum of their words.
func noteMessage() []byte {
	m := appendText(nil, declaredName, "Notes")
	for i, a := range annotations {
		typeName := ""
		if a.kind == noteWord {
			typeName = wordsType
		}
		if a.kind != noteDynamic {
			m = appendMessage(m, messageField, fieldDescriptor(a.name, uint64(i), uint64(a.kind), typeName, ""))
		}
	}
	return append(appendMessage(nil, fileMessage, m), words("unknown", 0)...)
}

// noteExtension declares that an event may hold that message.
func noteExtension() []byte {
	return appendMessage(nil, fileExtension,
		fieldDescriptor("debug", eventNotes, typeMessage, notesType, ".perfetto.protos.TrackEvent"))
}

// words declares one more word. Perfetto adds it to those it has.
func words(s string, id stringID) []byte {
	v := appendUint(appendText(nil, declaredName, s), valueNumber, id)
	return appendMessage(nil, fileEnum, appendMessage(appendText(nil, declaredName, wordsName), enumValue, v))
}

// describe writes a packet with declarations.
func (w *packetWriter) describe(file []byte) {
	set := appendMessage(nil, setFile, file)
	w.packet = appendUint(w.packet[:0], packetSequence, sequence)
	w.packet = appendMessage(w.packet, packetDescriptor, appendMessage(nil, descriptorSet, set))
	w.writePacket()
}

// word returns the number of a string, 0 for none. It is for strings of which there are few, because
// Perfetto goes through all it knows whenever one is added. A new one is declared before the event
// that is under construction.
func (w *packetWriter) word(s string) stringID {
	if s == "" {
		return 0
	}
	if id, ok := w.words[s]; ok {
		return id
	}
	id := stringID(len(w.words) + 1)
	w.words[s] = id
	w.describe(descriptorFile(words(printable(s), id)))
	return id
}
