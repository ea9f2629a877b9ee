package correlate

import (
	"fmt"
	"reflect"

	"github.com/stageline/stageline/collector/run"
)

// The load generator's records are written by their types, because most of their many fields are
// zero: of a struct a bit for each field that is not, then those fields.

func (c *codec) appendClient(b []byte, q *run.Request) []byte {
	c.b = b
	c.value(reflect.ValueOf(q).Elem())
	return c.b
}

func (c *codec) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		at := len(c.b)
		c.b = append(c.b, make([]byte, (v.NumField()+7)/8)...)
		for i := range v.NumField() {
			if f := v.Field(i); !f.IsZero() {
				c.b[at+i/8] |= 1 << (i % 8)
				c.value(f)
			}
		}
	case reflect.Pointer:
		c.value(v.Elem())
	case reflect.Slice:
		c.uint(uint64(v.Len()))
		for i := range v.Len() {
			c.value(v.Index(i))
		}
	case reflect.String:
		c.text(v.String())
	case reflect.Bool:
		c.has(v.Bool())
	case reflect.Int, reflect.Int64:
		c.int(v.Int())
	case reflect.Float64:
		c.float(v.Float())
	default:
		panic(fmt.Sprintf("a load generator's record has a %s, which is not kept yet: add it here", v.Type()))
	}
}

// client reads a record that value wrote.
func (d *decoder) client(b []byte) *run.Request {
	d.b, d.bad = b, false
	q := new(run.Request)
	d.value(reflect.ValueOf(q).Elem())
	d.bad = d.bad || len(d.b) != 0
	return q
}

func (d *decoder) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		n := (v.NumField() + 7) / 8
		if n > len(d.b) {
			d.bad = true
			return
		}
		bits := d.b[:n]
		d.b = d.b[n:]
		for i := range v.NumField() {
			if bits[i/8]&(1<<(i%8)) != 0 {
				d.value(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(v.Elem())
	case reflect.Slice:
		n := d.uint()
		if n > uint64(len(d.b)) {
			d.bad = true
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), int(n), int(n)))
		for i := range int(n) {
			d.value(v.Index(i))
		}
	case reflect.String:
		v.SetString(d.again())
	case reflect.Bool:
		v.SetBool(d.has())
	case reflect.Int, reflect.Int64:
		v.SetInt(d.int())
	case reflect.Float64:
		v.SetFloat(d.float())
	}
}

// again reads a text, the same one for those of short lists that come again and again.
func (d *decoder) again() string {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad = true
		return ""
	}
	b := d.b[:n]
	d.b = d.b[n:]
	if s, ok := d.texts[string(b)]; ok {
		return s
	}
	s := string(b)
	if d.texts == nil {
		d.texts = map[string]string{}
	}
	if len(d.texts) < 256 {
		d.texts[s] = s
	}
	return s
}
