"""Makes the sample PDFs and the XML that each must become.

Run as: python -m convertq.gateway.samples.make_samples [FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from convertq.gateway.samples import invoices, layouts
from convertq.gateway.samples.invoices import Invoice, expected
from convertq.gateway.xml_text import xml_pieces
from PIL import Image, ImageDraw
from reportlab.lib.pagesizes import A4
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

# name: invoice, layout, whether the layout shows codes, whether it shows net and VAT totals
SAMPLES: dict[str, tuple[Invoice, Callable[[Canvas, Invoice], None], bool, bool]] = {
    "papelaria": (invoices.OFFICE, layouts.classic, False, True),
    "estudio": (invoices.STUDIO, layouts.two_columns, False, False),
    "mercearia": (invoices.GROCER, layouts.receipt, True, False),
    "oficina": (invoices.REPAIRS, layouts.column_by_column, False, True),
    "armazens": (invoices.WHOLESALE, layouts.long_list, True, True),
    "hotel": (invoices.HOTEL, layouts.headings_once, False, True),
}


def make_samples(folder: Path) -> None:
    for name, (invoice, layout, codes, totals) in SAMPLES.items():
        (folder / f"{name}.pdf").write_bytes(draw(invoice, layout))
        tree = expected(invoice, codes, totals)
        (folder / f"{name}.xml").write_text("".join(xml_pieces(tree, pretty=True)), encoding="utf-8")
    (folder / "digitalizada.pdf").write_bytes(scan())


def new_canvas(file: BytesIO) -> Canvas:
    return Canvas(file, pagesize=A4, invariant=1)  # invariant: no clock and no random id in the bytes


def draw(invoice: Invoice, layout: Callable[[Canvas, Invoice], None]) -> bytes:
    file = BytesIO()
    canvas = new_canvas(file)
    canvas.setTitle(f"Fatura {invoice.number}")
    layout(canvas, invoice)
    canvas.save()
    return file.getvalue()


def scan() -> bytes:
    """A page that is one picture, as a scanner makes it: grey bars for lines, and no text."""
    picture = Image.new("L", (595, 842), 245)
    pen = ImageDraw.Draw(picture)
    for line in range(20):
        pen.rectangle((60, 60 + 30 * line, 300 + 37 * line % 200, 68 + 30 * line), fill=30)
    file = BytesIO()
    canvas = new_canvas(file)
    canvas.drawImage(ImageReader(picture), 0, 0, *A4)
    canvas.save()
    return file.getvalue()


if __name__ == "__main__":
    make_samples(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
