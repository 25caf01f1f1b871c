/* The records of a batch, looked through as they come: the same as walk.py in Python, which says what is looked for.

   Only the stable interface of CPython 3.11 is used, so that one build serves each later version. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#define MAX_WRONG 100      /* as MAX_WRONG in walk.py */
#define UNLOCKED_BYTES 16384 /* from here on other threads may run meanwhile */

/* As in walk.py. */
enum { GOOD, LENGTH, ENDS, DELTA, LONG_NUMBER, HEADERS, NAME, KEY, VALUE, REST, STAMP, TOO_MANY };
enum { AT_LENGTH, AT_ATTRIBUTES, AT_STAMP, AT_DELTA, AT_KEY, AT_VALUE, AT_HEADERS, AT_NAME, AT_CONTENT, AT_REST };

typedef struct {
    int32_t number;
    bool keyless;
    int64_t stamp_ms;
} Wrong;

typedef struct {
    PyObject_HEAD
    int64_t first_ms, earliest_ms, latest_ms, greatest_ms, stamp_ms;
    int64_t left, skip, value; /* bytes left of the record, of them to be skipped; what an error is about */
    int64_t wrong;
    uint64_t partial; /* a variable-length integer that began in the data before */
    uint32_t shift;
    int32_t count, number, headers, at, delta;
    bool needs_keys, has_gaps, keyless;
    Wrong kept[MAX_WRONG];
} Walker;

/* A zigzag integer of at most `bytes` bytes; false where the data end within it or it is longer. */
static inline bool number_at(const uint8_t **at, const uint8_t *end, int bits, int64_t *value)
{
    const uint8_t *p = *at;
    uint64_t raw = 0;
    for (int shift = 0; p < end && shift < bits; shift += 7) {
        uint8_t byte = *p++;
        if (shift + 7 > bits && (byte & 0x7F) >> (bits - shift))
            return false;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            *at = p;
            return true;
        }
    }
    return false;
}

static inline bool sized_at(const uint8_t **at, const uint8_t *end, int64_t least)
{
    int64_t size;
    if (!number_at(at, end, 32, &size) || size < least || size > end - *at)
        return false;
    if (size > 0)
        *at += size;
    return true;
}

static bool plain(const uint8_t *p, const uint8_t *end, int32_t count, int64_t greatest_delta_ms)
{
    int64_t greatest = INT64_MIN;
    for (int32_t number = 0; number < count; number++) {
        int64_t value;
        if (!number_at(&p, end, 32, &value) || value <= 0 || value > end - p)
            return false;
        const uint8_t *stop = p + value;
        p++;
        if (!number_at(&p, stop, 64, &value))
            return false;
        if (value > greatest)
            greatest = value;
        if (!number_at(&p, stop, 32, &value) || value != number)
            return false;
        if (!sized_at(&p, stop, -1) || !sized_at(&p, stop, -1))
            return false;
        if (!number_at(&p, stop, 32, &value) || value < 0)
            return false;
        for (; value > 0; value--)
            if (!sized_at(&p, stop, 0) || !sized_at(&p, stop, -1))
                return false;
        if (p != stop)
            return false;
    }
    return p == end && greatest == greatest_delta_ms && greatest >= 0;
}

static PyObject *are_plain(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "are_plain takes batch, start, count and greatest_delta_ms");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]);
    long long count = PyLong_AsLongLong(args[2]);
    long long greatest = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return NULL;
        PyErr_Clear(); /* a difference of two hostile timestamps */
        Py_RETURN_FALSE;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *data = view.buf;
    bool good = start >= 0 && start <= view.len && count >= 0 && count <= INT32_MAX &&
                plain(data + start, data + view.len, (int32_t)count, greatest);
    PyBuffer_Release(&view);
    return PyBool_FromLong(good);
}

static void keep(Walker *self)
{
    bool outside = self->stamp_ms != -1 &&
                   (self->stamp_ms < self->earliest_ms || self->stamp_ms > self->latest_ms);
    bool keyless = self->needs_keys && self->keyless;
    if (keyless || outside) {
        if (self->wrong < MAX_WRONG)
            self->kept[self->wrong] = (Wrong){self->number, keyless, self->stamp_ms};
        self->wrong++;
    }
    if (self->stamp_ms > self->greatest_ms)
        self->greatest_ms = self->stamp_ms;
    self->number++;
    self->at = AT_LENGTH;
}

/* What comes after a header's content, or after the number of headers. */
static int after_header(Walker *self)
{
    if (self->headers > 0) {
        self->at = AT_NAME;
        return GOOD;
    }
    if (self->left != 0) {
        self->value = self->left;
        return REST;
    }
    keep(self);
    return GOOD;
}

static int sized(Walker *self, int64_t size, int64_t least, int error)
{
    if (size < least || size > self->left) {
        self->value = size;
        return error;
    }
    self->skip = size > 0 ? size : 0;
    return GOOD;
}

static int take(Walker *self, int64_t value)
{
    int error = GOOD;
    switch (self->at) {
    case AT_LENGTH:
        if (value <= 0) {
            self->value = value;
            return LENGTH;
        }
        self->left = value;
        self->at = AT_ATTRIBUTES;
        return GOOD;
    case AT_STAMP:
        if (__builtin_add_overflow(self->first_ms, value, &self->stamp_ms)) {
            self->value = value;
            return STAMP;
        }
        self->at = AT_DELTA;
        return GOOD;
    case AT_DELTA:
        self->at = AT_KEY;
        if (self->has_gaps ? value > self->delta : value == self->number) {
            self->delta = (int32_t)value;
            return GOOD;
        }
        self->value = value;
        return DELTA;
    case AT_KEY:
        self->keyless = value < 0;
        self->at = AT_VALUE;
        return sized(self, value, -1, KEY);
    case AT_VALUE:
        self->at = AT_HEADERS;
        return sized(self, value, -1, VALUE);
    case AT_HEADERS:
        if (value < 0 || value > self->left) {
            self->value = value;
            return HEADERS;
        }
        self->headers = (int32_t)value;
        return after_header(self);
    case AT_NAME:
        self->at = AT_CONTENT;
        return sized(self, value, 0, NAME);
    default:
        self->headers--;
        self->at = AT_REST;
        error = sized(self, value, -1, VALUE);
        if (error == GOOD && self->skip == 0)
            error = after_header(self);
        return error;
    }
}

static int feed(Walker *self, const uint8_t *p, const uint8_t *end)
{
    while (p < end) {
        if (self->skip > 0) {
            int64_t step = self->skip < end - p ? self->skip : end - p;
            p += step;
            self->skip -= step;
            self->left -= step;
            if (self->skip == 0 && self->at == AT_REST) {
                int error = after_header(self);
                if (error != GOOD)
                    return error;
            }
            continue;
        }
        if (self->at == AT_LENGTH && self->shift == 0) {
            if (self->number == self->count) {
                self->value = end - p;
                return TOO_MANY;
            }
        } else if (self->at != AT_LENGTH) {
            if (self->left == 0)
                return ENDS;
            self->left--;
        }
        uint8_t byte = *p++;
        if (self->at == AT_ATTRIBUTES) {
            self->at = AT_STAMP;
            continue;
        }
        uint32_t bits = self->at == AT_STAMP ? 64 : 32, shift = self->shift;
        uint64_t low = byte & 0x7F;
        if (shift >= bits || (shift + 7 > bits && low >> (bits - shift)))
            return LONG_NUMBER;
        self->partial |= low << shift;
        if (byte >= 0x80) {
            self->shift = shift + 7;
            continue;
        }
        int64_t value = (int64_t)(self->partial >> 1) ^ -(int64_t)(self->partial & 1);
        self->partial = 0;
        self->shift = 0;
        int error = take(self, value);
        if (error != GOOD)
            return error;
    }
    return GOOD;
}

static PyObject *walker_feed(Walker *self, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *start = view.buf, *end = start + view.len;
    int error;
    if (view.len >= UNLOCKED_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        error = feed(self, start, end);
        Py_END_ALLOW_THREADS
    } else {
        error = feed(self, start, end);
    }
    PyBuffer_Release(&view);
    return PyLong_FromLong(error);
}

static PyObject *walker_state(Walker *self, PyObject *Py_UNUSED(ignored))
{
    bool between = self->at == AT_LENGTH && self->shift == 0;
    return Py_BuildValue("(iOLLL)", self->number, between ? Py_True : Py_False, (long long)self->greatest_ms,
                         (long long)self->value, (long long)self->wrong);
}

static PyObject *walker_wrong(Walker *self, PyObject *Py_UNUSED(ignored))
{
    Py_ssize_t size = self->wrong < MAX_WRONG ? (Py_ssize_t)self->wrong : MAX_WRONG;
    PyObject *found = PyList_New(size);
    for (Py_ssize_t i = 0; found != NULL && i < size; i++) {
        Wrong *each = &self->kept[i];
        PyObject *pair = each->keyless ? Py_BuildValue("(iO)", each->number, Py_None)
                                       : Py_BuildValue("(iL)", each->number, (long long)each->stamp_ms);
        if (pair == NULL || PyList_SetItem(found, i, pair) < 0) {
            Py_DECREF(found);
            return NULL;
        }
    }
    return found;
}

static int walker_init(Walker *self, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    int count, needs_keys, has_gaps;
    long long first_ms, earliest_ms, latest_ms;
    if (!PyArg_ParseTuple(args, "iLLLpp", &count, &first_ms, &earliest_ms, &latest_ms, &needs_keys, &has_gaps))
        return -1;
    self->count = count;
    self->first_ms = first_ms;
    self->earliest_ms = earliest_ms;
    self->latest_ms = latest_ms;
    self->needs_keys = needs_keys;
    self->has_gaps = has_gaps;
    self->delta = -1;
    self->greatest_ms = -1;
    self->left = self->skip = self->value = self->wrong = 0;
    self->number = self->headers = self->at = 0;
    self->partial = self->shift = 0;
    return 0;
}

static PyMethodDef walker_methods[] = {
    {"feed", (PyCFunction)walker_feed, METH_O, NULL},
    {"state", (PyCFunction)walker_state, METH_NOARGS, NULL},
    {"wrong", (PyCFunction)walker_wrong, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot walker_slots[] = {
    {Py_tp_init, walker_init},
    {Py_tp_methods, walker_methods},
    {0, NULL},
};

static PyType_Spec walker_spec = {
    .name = "headwater_broker.log._records.Walker",
    .basicsize = sizeof(Walker),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = walker_slots,
};

static PyMethodDef functions[] = {
    {"are_plain", (PyCFunction)(void (*)(void))are_plain, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&walker_spec);
    int done = type == NULL ? -1 : PyModule_AddObjectRef(module, "Walker", type);
    Py_XDECREF(type);
    return done;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static PyModuleDef module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_records",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__records(void)
{
    return PyModuleDef_Init(&module);
}
